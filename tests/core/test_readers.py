"""What each reader shows, and what it makes of the replies."""

from __future__ import annotations

import re
from itertools import accumulate, pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memagent import from_text
from memagent.core import Span, make_reader, register
from memagent.core.readers.chunkwise import read as text_of
from memagent.core.readers.excerpt import fits
from memagent.core.readers.retrieve import retrieved
from memagent.core.readers.truncate import head_and_tail
from memagent.driver import read
from memagent.errors import ConfigError, TooLongError
from memagent.models.open import Defaults, OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.ranking import bm25
from memagent.settings import make_plan, make_settings
from memagent.tasks.lazy_text import LazyText
from tests.helpers import WordTokenizer

OPTIONS = {"truncate": {}, "direct": {}, "retrieve": {"passages": 2}}
FACT = "The code for amber-falcon is 4821973."
LINES = [f"Line {number} tells of the sea and of nothing else in particular." for number in range(300)]
TEXT = LazyText(["\n".join([*LINES[:150], FACT, *LINES[150:]])])
QUESTION = "What is the code for amber-falcon?"


def opened(script=lambda turn: "noted", window=1000):
    return OpenModel(engine=ScriptedModel(script, window=window, tokenizer=WordTokenizer()), defaults=Defaults())


def settings(model, **options):
    values = {"profile": "default", "question_tokens": 20, "chunk_tokens": 100, "memory_tokens": 60, "answer_tokens": 20}
    return make_settings(model, model="scripted", **{**values, **options})


def planned(reader, text=TEXT, script=lambda turn: "noted", reader_options=None, **options):
    model = opened(script)
    chosen = settings(model, reader=reader, reader_options=reader_options, **options)
    return make_plan(text, QUESTION, chosen, model), model


def reading(reader, **options):
    plan, model = planned(reader, **options)
    return plan, read(plan, model.engine), model.engine.turns


def shown_by(plan):
    """The text that a plan with an excerpt shows."""
    return text_of(plan.text, plan.shown(0))


def test_truncate_shows_head_and_tail_and_asks_once():
    plan, _, turns = reading("truncate")
    [turn] = turns
    assert LINES[0] in turn.user
    assert LINES[-1] in turn.user
    assert FACT not in turn.user
    assert plan.excerpt[0].start == 0
    assert plan.excerpt[-1].end == len(TEXT)


def test_retrieve_shows_what_matches_the_question():
    plan, _, turns = reading("retrieve", reader_options={"passages": 4})
    [turn] = turns
    assert FACT in turn.user
    assert any(FACT in TEXT.read(span.start, span.end) for span in plan.excerpt)
    assert [span.start for span in plan.excerpt] == sorted(span.start for span in plan.excerpt)


@pytest.mark.parametrize("reader", ["truncate", "retrieve"])
@pytest.mark.parametrize("direct", [True, False])
def test_excerpts_are_no_longer_than_what_a_memory_turn_shows(reader, direct):
    plan, _, _ = reading(reader, reader_options=OPTIONS[reader] | {"through_memory": not direct})
    room = 160 if direct else 100
    count = WordTokenizer().count(shown_by(plan))
    assert room * 0.6 < count <= room
    assert plan.turns == (1 if direct else 2)


@pytest.mark.parametrize("reader", ["truncate", "retrieve"])
def test_a_short_document_is_shown_whole(reader):
    short = LazyText([FACT + " Nothing else."])
    plan, _, turns = reading(reader, text=short, reader_options=OPTIONS[reader])
    assert str(short) in turns[0].user
    assert plan.excerpt is None


def test_a_document_that_fits_is_shown_to_the_letter():
    short = LazyText([" " + "\n".join(LINES[:7]) + "\n\n"])
    for reader in ("truncate", "retrieve", "direct"):
        for direct in (True, False):
            plan, _, _ = reading(reader, text=short, reader_options=OPTIONS[reader] | {"through_memory": not direct})
            assert shown_by(plan) == str(short)


@given(st.integers(0, 299))
def test_a_retrieved_fact_is_never_cut(place):
    fact = "The code for amber-falcon, which everybody had forgotten long ago, is 4821973."
    text = LazyText(["\n".join([*LINES[:place], fact, *LINES[place:]])])
    spans = retrieved(text, QUESTION, WordTokenizer(), bm25, 160, 4)
    assert any(fact in text.read(span.start, span.end) for span in spans)
    assert all(one.end < other.start for one, other in pairwise(spans))
    assert WordTokenizer().count("\n[…]\n".join(text.read(span.start, span.end).strip() for span in spans)) <= 160


def test_what_is_shown_stands_as_in_the_document():
    text = LazyText(["\n".join(LINES) + "\n" + FACT + " "])
    for reader in ("truncate", "retrieve"):
        plan, _, _ = reading(reader, text=text, reader_options=OPTIONS[reader])
        assert shown_by(plan).endswith(f"\n{FACT} ")  # to the last space


def test_direct_is_refused_where_it_does_not_fit():
    for through_memory in (False, True):
        with pytest.raises(TooLongError, match="does not fit"):
            planned("direct", reader_options={"through_memory": through_memory})
    short = LazyText([" ".join(LINES[:8])])
    for through_memory in (False, True):
        _, _, turns = reading("direct", reader_options={"through_memory": through_memory}, text=short)
        assert str(short) in turns[0].user


def test_append_appends_and_forgets_the_oldest_lines():
    numbers = iter(range(10_000))
    _, transcript, turns = reading("append", script=lambda turn: f"note {next(numbers)} of one and another kind")
    memories = [record.memory for record in transcript.records if record.kind == "update"]
    assert memories[1].startswith(memories[0])
    assert memories[2].startswith(memories[1])
    assert "note 0" not in memories[-1]
    assert memories[-1].splitlines()[-1].startswith(f"note {len(memories) - 1}")
    assert all(WordTokenizer().count(memory) <= 60 for memory in memories)
    assert transcript.records[-2].outcome == "full"
    assert memories[2] in turns[3].user


@pytest.mark.parametrize("rules", ["careful", "paper"])
def test_append_keeps_its_notes_when_a_reply_is_empty(rules):
    replies = iter(["note one", "note two"])
    _, transcript, _ = reading(
        "append", script=lambda turn: next(replies, "" if turn.kind == "update" else "x"), rules=rules
    )
    assert transcript.memory == "note one\nnote two"


def test_append_does_not_repeat_a_line():
    _, transcript, _ = reading("append", script=lambda turn: "the same note")
    assert transcript.memory == "the same note"


def test_append_shows_an_empty_memory_where_the_profile_has_no_words_for_notes():
    _, _, turns = reading("append", script=lambda turn: "something noted", profile="compact")
    assert all("Memory: nothing yet" in turn.user for turn in turns[:-1])
    assert "something noted" in turns[-1].user


def test_memory_reads_every_character():
    plan, _, turns = reading("memory")
    assert plan.excerpt is None
    sections = [re.search(r"<section>\n(.*)\n</section>", turn.user, re.S) for turn in turns[:-1]]
    assert "".join(match.group(1) for match in sections if match) == str(TEXT)


@given(st.integers(40, 400), st.integers(1, 300))
def test_head_and_tail_do_not_overlap_and_fit(room, lines):
    text = LazyText(["\n".join(LINES[:lines])])
    assume(not fits(text, WordTokenizer(), room))
    spans = head_and_tail(text, WordTokenizer(), room)
    assert spans[0].start == 0
    assert spans[-1].end == len(text)
    if len(spans) == 2:
        assert spans[0].end <= spans[1].start
        shown = sum(WordTokenizer().count(text.read(span.start, span.end).strip()) for span in spans)
        assert room * 0.5 < shown <= room


def ranked(passages, query):
    text, ends = from_text("".join(passages)), list(accumulate(map(len, passages), initial=0))
    return bm25(text, [Span(start=start, end=end) for start, end in pairwise(ends)], query)


def test_ties_and_unknown_words_are_settled_by_place():
    passages = ["the sea ", "the sky ", "a gull ", "an egg"]
    assert ranked(passages, "zebra") == [0, 1, 2, 3]
    assert ranked(passages, "gull") == [2, 0, 1, 3]
    assert ranked(passages, "") == [0, 1, 2, 3]
    assert ranked(["the ", "of ", "and"], "the") == [0, 1, 2]
    assert ranked(["大海很平静", "天空很蓝", "密码是四八二", "下雨了"], "密码是什么?")[0] == 2


def test_too_many_passages_for_the_window_are_refused():
    with pytest.raises(ConfigError, match="20 passages do not fit 100 tokens"):
        retrieved(TEXT, QUESTION, WordTokenizer(), bm25, 100, 20)
    with pytest.raises(ConfigError, match="at least 1"):
        make_reader("retrieve", {"passages": 0})


def test_an_unknown_reader_or_option_is_refused_with_those_there_are():
    with pytest.raises(
        ConfigError,
        match="no reader 'guess': use one of memory, gated, parallel, search, reread, recall, append, direct, truncate",
    ):
        make_reader("guess")
    with pytest.raises(ConfigError, match="'memory' has no option 'passages'; it has no options"):
        make_reader("memory", {"passages": 3})
    with pytest.raises(ConfigError, match="'truncate' has no option 'passages'; it has through_memory"):
        make_reader("truncate", {"passages": 3})
    for old, new in (("whole", "direct"), ("refine", "append")):
        with pytest.raises(ConfigError, match=f"'{old}' is called '{new}' now"):
            make_reader(old)


def test_a_name_belongs_to_one_reader():
    class Other:
        name = "memory"
        summary = "another one"

    with pytest.raises(ConfigError, match="there is a reader 'memory' already"):
        register(Other)


def test_a_model_that_cannot_answer_from_a_text_makes_a_memory_of_it():
    model = OpenModel(
        engine=ScriptedModel(lambda turn: "noted", window=1000, tokenizer=WordTokenizer()), defaults=Defaults(direct=False)
    )
    for reader in ("direct", "truncate"):
        assert settings(model, reader=reader).reader_options == {"through_memory": True}
        chosen = settings(model, reader=reader, reader_options={"through_memory": False})
        assert chosen.reader_options == {"through_memory": False}
    assert settings(model).reader_options == {}
