"""The reader `auto` says what it chose and why."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

import memagent
from memagent.batch.shared import SharedEngine
from memagent.choice import choose
from memagent.errors import ConfigError
from memagent.models.open import Defaults, OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.session import Session
from memagent.settings import make_settings
from tests.helpers import WordTokenizer

LONG = memagent.from_text(" ".join(f"w{n}" for n in range(3000)))
SHORT = memagent.from_text("a few words")
BUDGETS = {"question_tokens": 20, "chunk_tokens": 200, "memory_tokens": 60, "answer_tokens": 20}


def model(concurrency=8, **defaults):
    engine = ScriptedModel(lambda turn: "nothing new", window=1000, tokenizer=WordTokenizer())
    engine.concurrency, engine.lockstep = concurrency, False  # as a server is
    return OpenModel(engine=engine, defaults=Defaults(**defaults))


def chosen(text, opened, **options):
    settings = make_settings(opened, model="scripted", reader="auto", **{"profile": "default", **BUDGETS, **options})
    return choose(text, "why?", settings, opened)


@pytest.mark.parametrize(
    ("text", "concurrency", "reader", "reason"),
    [
        (SHORT, 8, "direct", "the document fits the window"),
        (LONG, 8, "parallel", "16 chunks, 8 at a time"),
        (LONG, 1, "gated", "16 chunks, 1 at a time"),
        (memagent.from_text(" ".join(["word"] * 1200)), 8, "gated", "7 chunks, few chunks"),
    ],
)
def test_the_choice_follows_length_and_concurrency(text, concurrency, reader, reason):
    choice = chosen(text, model(concurrency))
    assert (choice.reader, choice.reason) == (reader, reason)
    assert reader in choice.plans


def test_in_process_where_rounds_only_cost_more_a_long_document_is_read_in_order():
    opened = model()
    opened.engine.lockstep = True
    choice = chosen(LONG, opened)
    assert (choice.reader, choice.reason) == ("gated", "16 chunks, in this process")


def test_readers_that_the_model_or_the_profile_does_not_know_are_left_out():
    assert chosen(LONG, model(readers=["memory", "gated"])).reader == "gated"
    assert chosen(LONG, model(readers=["memory"])).reader == "memory"
    assert chosen(SHORT, model(direct=False)).reader == "gated"
    assert chosen(LONG, model(), memory_tokens=150, chunk_tokens=200).reader == "gated"  # no room for a merge


def test_a_model_says_which_readers_suit_it():
    assert chosen(LONG, model(auto=["memory", "gated"])).reader == "gated"
    assert chosen(LONG, model(auto=["parallel"])).reader == "parallel"
    assert chosen(LONG, model(auto=["gated"], readers=["memory"])).reader == "memory"
    choice = chosen(LONG, model(auto=[]))
    assert (choice.reader, set(choice.plans)) == ("memory", {"memory"})
    assert choice.reason.startswith("no other reader suits")


def test_the_embedded_model_is_read_without_gates():
    opened = memagent.open_model("embedded")
    with closing(opened.engine):
        assert chosen(LONG, opened, profile=None, **dict.fromkeys(BUDGETS)).reader == "memory"


@pytest.mark.parametrize("window", [1000, None])
def test_a_document_that_is_certainly_too_long_is_not_counted_as_one_text(window):
    opened, counted = model(), []

    class Watching(WordTokenizer):
        def count(self, text):
            counted.append(len(text))
            return super().count(text)

    opened.engine.window, opened.engine.tokenizer = window, Watching()
    text = memagent.from_text(" ".join(f"w{n}" for n in range(20_000)))
    assert chosen(text, opened).reader == "parallel"
    assert max(counted) < len(text) / 2


def test_a_session_reads_with_what_was_chosen_and_enters_that_in_the_journal(tmp_path):
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        opened = model()
        settings = make_settings(opened, model="scripted", reader="auto", profile="default", **BUDGETS)
        session = Session(LONG, opened, settings, journal)
        [reading] = session.run(session.start(["why?"]))
        assert session.settings.reader == "parallel"
        assert journal.show(reading.id).settings["reader"] == "parallel"
        assert reading.share_read == 1.0


def test_auto_takes_no_options_and_is_for_one_document():
    with pytest.raises(ConfigError, match="'auto' has no option 'rounds'"):
        make_settings(model(), model="scripted", reader="auto", reader_options={"rounds": 2}, profile="default", **BUDGETS)
    with pytest.raises(ConfigError, match="'auto' chooses for one document"):
        memagent.core.make_reader("auto")


def test_readings_that_share_a_model_in_process_are_read_as_one_alone_is():
    opened = model()
    opened.engine.lockstep = True
    shared = replace(opened, engine=SharedEngine(opened.engine, 8))
    assert chosen(LONG, shared).reader == chosen(LONG, opened).reader == "gated"


def test_of_several_questions_the_longest_has_to_fit_with_the_document():
    questions = ["why?", "why is that so, of all that could have been " + "and was not " * 3]
    opened = model()
    budgets = {**BUDGETS, "question_tokens": 60}
    settings = make_settings(opened, model="scripted", reader="auto", profile="default", **budgets)
    documents = (memagent.from_text(" ".join(["word"] * length)) for length in range(1000, 0, -5))
    document = next(one for one in documents if choose(one, questions[0], settings, opened).reader == "direct")
    session = Session(document, opened, settings)
    readings = session.start(questions)
    assert [one.plan.reader.name for one in readings] == [session.choice.reader] * 2
    assert session.choice.reader != "direct"
