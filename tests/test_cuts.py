"""Documents are cut once: what the journal has of a document is used again, if it still holds."""

from __future__ import annotations

import json
import random
from contextlib import contextmanager
from dataclasses import replace

import pytest

import memagent
from memagent.core import Chunks, chunking, cut
from memagent.core.chunking import chunk
from memagent.documents import from_text
from memagent.errors import JournalError, JournalFileError
from memagent.models.open import OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.models.tokenizers import ByteTokenizer
from memagent.session import Session
from memagent.settings import make_settings
from tests.helpers import StringText

OPTIONS = {"question_tokens": 60, "chunk_tokens": 500, "memory_tokens": 80, "answer_tokens": 60}
TEXT = " ".join(f"Line {number} tells of the sea." for number in range(4000))


class Counting:
    """A tokenizer that counts the characters that it was asked about."""

    def __init__(self, tokenizer=None) -> None:
        self.tokenizer = tokenizer or ByteTokenizer()
        self.exact = self.tokenizer.exact
        self.asked = 0

    def count(self, text: str) -> int:
        self.asked += len(text)
        return self.tokenizer.count(text)

    def ends(self, text: str) -> list[int]:
        self.asked += len(text)
        return self.tokenizer.ends(text)


class Wider(ByteTokenizer):
    """Of a character, the first half is a token and the second half is another."""

    def count(self, text: str) -> int:
        return 2 * super().count(text)

    def ends(self, text: str) -> list[int]:
        return [end for end in super().ends(text) for _ in range(2)]


@pytest.fixture
def journal(tmp_path):
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        yield journal


def model(tokenizer=None, reply="noted") -> OpenModel:
    return OpenModel(engine=ScriptedModel(lambda turn: reply, tokenizer=tokenizer or Counting()))


def session(journal, opened, text=TEXT, **options) -> Session:
    settings = make_settings(opened, model="scripted", profile="default", **{**OPTIONS, **options})
    return Session(from_text(text), opened, settings, journal)


def asked_to_begin(journal, question="Which sea?", tokenizer=None, text=TEXT, **options) -> int:
    """The characters that a tokenizer is asked about until a reading has begun."""
    opened = model(tokenizer)
    session(journal, opened, text, **options).start([question])
    return opened.engine.tokenizer.asked


def test_another_question_about_a_document_begins_without_cutting_it(journal) -> None:
    assert asked_to_begin(journal) > 2 * len(TEXT)  # placed and counted
    again = asked_to_begin(journal, "Which line?")
    assert again < len(TEXT) / 10
    assert asked_to_begin(journal, "Which line?", reader="gated") < len(TEXT) / 10  # readers share it
    assert asked_to_begin(journal, text=TEXT + " And more.") > 2 * len(TEXT)
    assert asked_to_begin(journal, chunk_tokens=600) > 2 * len(TEXT)


def test_a_reading_is_resumed_without_cutting_its_document(journal) -> None:
    first = session(journal, model())
    [begun] = first.start(["Which sea?"])
    first.journal.fail(begun.id, "the connection was lost")
    opened = model()
    resumed = session(journal, opened).resume(begun.id)
    assert opened.engine.tokenizer.asked < len(TEXT) / 10
    assert resumed.plan.digest() == begun.plan.digest()
    assert resumed.plan.chunks == begun.plan.chunks
    [reading] = session(journal, opened).run([resumed])
    assert reading.answer == "noted"


@pytest.mark.parametrize("reader", ["memory", "recall", "search", "reread", "parallel", "retrieve"])
def test_a_plan_from_the_journal_is_that_of_a_document_that_was_cut(journal, reader) -> None:
    fresh = session(None, model(), reader=reader).plan("Which sea?")
    session(journal, model(), reader=reader).start(["Which sea?"])
    opened = model()
    again = session(journal, opened, reader=reader).plan("Which sea?")
    assert again.digest() == fresh.digest()
    assert again.tokens == fresh.tokens
    assert opened.engine.tokenizer.asked < len(TEXT) / 2


def test_a_tokenizer_that_counts_otherwise_cuts_again_and_its_chunks_are_kept_from_then_on(journal) -> None:
    asked_to_begin(journal)
    assert asked_to_begin(journal, tokenizer=Counting(Wider())) > 2 * len(TEXT)
    assert asked_to_begin(journal, tokenizer=Counting(Wider())) < len(TEXT) / 10
    with from_text(TEXT) as document:
        kept = session(journal, model(Wider())).plan("Which sea?").chunks
        assert kept == Chunks(chunk(document, Wider(), OPTIONS["chunk_tokens"]))


def test_a_reading_whose_tokenizer_counts_otherwise_now_is_refused(journal) -> None:
    [begun] = session(journal, model()).start(["Which sea?"])
    journal.fail(begun.id, "lost")
    with pytest.raises(JournalError, match="has another plan"):
        session(journal, model(Wider())).resume(begun.id)


def test_a_document_that_has_changed_is_refused_before_it_is_cut(journal) -> None:
    [begun] = session(journal, model()).start(["Which sea?"])
    journal.fail(begun.id, "lost")
    opened = model()
    with pytest.raises(JournalError, match="has changed since it was read"):
        session(journal, opened, TEXT.replace("sea", "bay")).resume(begun.id)
    assert opened.engine.tokenizer.asked < len(TEXT) / 10


def test_chunks_stay_as_long_as_there_is_a_reading_of_the_document(journal) -> None:
    ids = [session(journal, model()).start([question])[0].id for question in ("Which sea?", "Which line?", "Which ship?")]
    asked_to_begin(journal, text=TEXT[:50_000])  # another document, which goes its own way
    for id in ids[:2]:
        journal.fail(id, "lost")
        journal.delete(id)
        opened = model()
        session(journal, opened).plan("Which bay?")
        assert opened.engine.tokenizer.asked < len(TEXT) / 10
    journal.delete(ids[2])
    assert kept(journal) == 1
    opened = model()
    session(journal, opened).plan("Which bay?")
    assert opened.engine.tokenizer.asked > 2 * len(TEXT)


def kept(journal) -> int:
    [(count,)] = journal._db.execute("SELECT count(*) FROM cuts").fetchall()
    return count


def test_several_questions_keep_one_cut_and_two_readers_with_other_limits_two(journal) -> None:
    session(journal, model()).start(["Which sea?", "Which line?"])
    assert kept(journal) == 1
    session(journal, model(), reader="recall").start(["Which sea?"])
    both = session(journal, model())
    both.plan("Which sea?")
    both.settings = make_settings(both.opened, model="scripted", profile="default", **{**OPTIONS, "chunk_tokens": 700})
    [begun] = both.start(["Which sea?"])
    assert kept(journal) == 3
    assert journal._db.execute("SELECT count(*) FROM cuts_used WHERE reading = 4").fetchone()[0] == 2
    assert begun.plan.budgets.chunk == 700


def test_what_the_journal_has_is_not_written_again(journal) -> None:
    said = list[str]()
    journal._db.set_trace_callback(said.append)
    one = session(journal, model())
    [begun, _] = one.start(["Which sea?", "Which line?"])
    session(journal, model()).start(["Which ship?"])
    journal.fail(begun.id, "lost")
    session(journal, model()).resume(begun.id)
    assert len([statement for statement in said if statement.startswith("INSERT INTO cuts (")]) == 1


def test_models_have_chunks_of_their_own(journal) -> None:
    for most in (4, 0.1):
        for name, tokenizer in (("one", ByteTokenizer()), ("other", Wider())):
            opened = model(Counting(tokenizer))
            settings = make_settings(opened, model=name, base_url="http://host/v1", profile="default", **OPTIONS)
            Session(from_text(TEXT), opened, settings, journal).start(["Which sea?"])
            assert opened.engine.tokenizer.asked < most * len(TEXT)


def test_a_reader_that_is_chosen_takes_them_too(journal) -> None:
    assert asked_to_begin(journal, reader="auto") > 2 * len(TEXT)
    assert asked_to_begin(journal, "Which line?", reader="auto") < len(TEXT) / 4


def test_a_served_model_is_known_by_its_name(journal) -> None:
    for url, most in (("http://one:1/v1", 4), ("http://two:2/v1", 0.1)):
        opened = model()
        settings = make_settings(opened, model="served", base_url=url, profile="default", **OPTIONS)
        settings = replace(settings, identity=f"openai:served@{url}")
        Session(from_text(TEXT), opened, settings, journal).start(["Which sea?"])
        assert opened.engine.tokenizer.asked < most * len(TEXT)


@pytest.mark.parametrize("name", ["caf\udce9@1", "http://user:hunter2@host/m"])
def test_any_name_of_a_model_will_do_and_none_is_kept_in_clear(journal, name) -> None:
    for most in (4, 0.1):
        opened = model()
        settings = make_settings(opened, model=name, base_url="http://host/v1", profile="default", **OPTIONS)
        Session(from_text(TEXT), opened, settings, journal).start(["Which sea?"])
        assert opened.engine.tokenizer.asked < most * len(TEXT)
    assert "hunter2" not in str([tuple(row) for row in journal._db.execute("SELECT document, way, chunks FROM cuts")])


def test_a_limit_may_be_any_number(journal) -> None:
    session(journal, model(), chunk_tokens=10**20).start(["Which sea?"])
    assert asked_to_begin(journal, chunk_tokens=10**20) < 3 * len(TEXT)  # one chunk, counted again, and its prompt


@contextmanager
def full(journal, pages=2):
    [(used,)] = journal._db.execute("PRAGMA page_count").fetchall()
    journal._db.execute(f"PRAGMA max_page_count={used + pages}")
    try:
        yield
    finally:
        journal._db.execute("PRAGMA max_page_count=1000000")


def test_a_reading_whose_chunks_cannot_be_kept_does_not_begin(journal) -> None:
    with full(journal), pytest.raises(JournalFileError, match="no room on its disk"):
        session(journal, model(), chunk_tokens=20).start(["Which sea?"])
    assert journal.list() == ()
    again = session(journal, model(), chunk_tokens=20)
    [begun] = again.start(["Which sea?"])
    assert [one.id for one in journal.list()] == [begun.id]
    assert kept(journal) == 1


def test_an_answered_reading_is_shown_again_where_nothing_can_be_written(journal) -> None:
    one = session(journal, model())
    [begun] = one.start(["Which sea?"])
    one.run([begun])
    journal._db.execute("DELETE FROM cuts_used")
    journal._db.execute("DELETE FROM cuts")
    journal._db.execute("PRAGMA query_only = ON")
    resumed = session(journal, model()).resume(begun.id)
    assert (resumed.closed, resumed.state.answer) == (True, "noted")


def test_a_reading_that_is_resumed_keeps_the_chunks_that_were_lost(journal) -> None:
    [begun] = session(journal, model()).start(["Which sea?"])
    journal.fail(begun.id, "lost")
    journal._db.execute("DELETE FROM cuts_used")
    journal._db.execute("DELETE FROM cuts")
    for most in (4, 0.1, 0.1):
        opened = model()
        session(journal, opened).resume(begun.id)
        assert opened.engine.tokenizer.asked < most * len(TEXT)
        journal.fail(begun.id, "lost")


def test_chunks_that_another_version_cut_are_not_used(journal, monkeypatch) -> None:
    asked_to_begin(journal)
    monkeypatch.setattr("memagent.cuts.CUTTING", chunking.CUTTING + 1)
    assert asked_to_begin(journal) > 2 * len(TEXT)


@pytest.mark.parametrize(
    "broken",
    [
        '{"characters": [10], "tokens": [10], "settled": 0}',
        f'{{"characters": [5000, {len(TEXT) - 5000}], "tokens": [490, 480], "settled": 0}}',
        f'{{"characters": [{len(TEXT)}], "tokens": [90, 80], "settled": 0}}',
        f'{{"characters": [{len(TEXT)}], "tokens": [{len(TEXT)}], "settled": 0}}',
        f'{{"characters": [{len(TEXT)}], "tokens": [400], "settled": 2}}',
        f'{{"characters": [{len(TEXT)}], "tokens": [400], "settled": "x"}}',
        f'{{"characters": [{len(TEXT) + 5}, -5], "tokens": [400, 2], "settled": 0}}',
        '{"characters": ["a"], "tokens": [400], "settled": 0}',
        '{"characters": [1], "tokens": [-400], "settled": 0}',
        '{"tokens": [400]}',
        "[1]",
        '"x"',
        "null",
        "{}",
        '{"characters": [1',
        "\udcff",
        "",
    ],
)
def test_chunks_that_are_not_those_of_the_document_are_not_used(journal, broken) -> None:
    one = session(journal, model())
    [begun] = one.start(["Which sea?"])
    journal._db.execute("UPDATE cuts SET chunks = ?", [broken.encode("utf-8", "surrogateescape")])
    assert session(journal, model()).plan("Which sea?").chunks == begun.plan.chunks
    [again] = session(journal, model()).start(["Which sea?"])
    assert again.plan.digest() == begun.plan.digest()
    assert asked_to_begin(journal) < len(TEXT) / 10  # what was damaged is replaced


class Foreign(ByteTokenizer):
    """Has a token for each letter, and four for some."""

    def __init__(self, letter: str) -> None:
        self.letter = letter

    def count(self, text: str) -> int:
        return len(self.ends(text))

    def ends(self, text: str) -> list[int]:
        return [end for end, letter in enumerate(text, 1) for _ in range(4 if letter == self.letter else 1)]


def test_a_tokenizer_that_counts_otherwise_in_one_place_only_is_noticed(journal) -> None:
    """Where letters are rare, or in a third of the text."""
    rare = TEXT[:60_100] + "\u6d77" * 150 + TEXT[60_100:]  # of three bytes; between chunks that are spread over the text
    third = TEXT[:40_000] + TEXT[40_000:80_000].replace("s", "#") + TEXT[80_000:]
    for text, letter in ((rare, "\u6d77"), (third, "#")):
        asked_to_begin(journal, text=text)
        assert asked_to_begin(journal, tokenizer=Counting(Foreign(letter)), text=text) > 2 * len(text)


def test_a_reading_that_grows_keeps_the_chunks_of_its_text_as_it_is_now(journal, tmp_path) -> None:
    path, rng = tmp_path / "log.txt", random.Random(4)
    path.write_text(TEXT)
    first = memagent.read(path, "Which sea?", model=model(), journal=journal, **OPTIONS)
    for _ in range(3):
        added = "".join(f"Line {rng.randrange(10**6)} tells of a bay. " for _ in range(20))
        with path.open("a") as file:
            file.write(added)
        opened = model()
        memagent.extend(first, model=opened, journal=journal)
        assert opened.engine.tokenizer.asked < 1.5 * len(TEXT)  # the prompts; to cut both texts again takes four times it
    kept = journal._db.execute("SELECT document, chunks FROM cuts").fetchall()
    with memagent.load(path) as document:
        assert [row["document"] for row in kept] == [document.digest]
        assert Chunks.from_json(json.loads(kept[0]["chunks"])) == cut(document, ByteTokenizer(), OPTIONS["chunk_tokens"])


def test_readings_of_one_document_that_are_extended_one_by_one_cut_only_what_was_added(journal, tmp_path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(TEXT)
    first, second = (memagent.read(path, q, model=model(), journal=journal, **OPTIONS) for q in ("Which sea?", "Why?"))
    with path.open("a") as file:
        file.write("A bay was seen. " * 10)
    for one in (first, second):
        opened = model()
        memagent.extend(one, model=opened, journal=journal)
        assert opened.engine.tokenizer.asked < 1.5 * len(TEXT)
    assert kept(journal) == 1


def test_chunks_come_back_as_they_were() -> None:
    made = cut(StringText(TEXT), ByteTokenizer(), 50)
    again = Chunks.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    assert (again.tokens, again.settled, again.digest()) == (made.tokens, made.settled, made.digest())
    assert made.hold(StringText(TEXT), ByteTokenizer(), 50)
    assert not made.hold(StringText(TEXT), ByteTokenizer(), 40)
    assert not Chunks().hold(StringText(""), ByteTokenizer(), 50)
    values = made.to_json()
    empty = {"characters": [0, *values["characters"]], "tokens": [0, *values["tokens"]]}
    for change in ({"settled": len(made) + 1}, {"settled": -1}, empty):
        assert not Chunks.from_json({**values, **change}).hold(StringText(TEXT), ByteTokenizer(), 50)


def test_a_dry_run_and_a_reading_without_a_journal_cut_for_themselves() -> None:
    assert asked_to_begin(None) > 2 * len(TEXT)
