"""Documents are cut once: what the journal has of a document is used again, if it still holds."""

from __future__ import annotations

import json
import random

import pytest

import memagent
from memagent.core import Chunks, chunking, cut
from memagent.core.chunking import chunk
from memagent.documents import from_text
from memagent.errors import JournalError
from memagent.journal import Cut
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


def test_chunks_go_with_the_reading_that_they_were_cut_for(journal) -> None:
    [first] = session(journal, model()).start(["Which sea?"])
    [other] = session(journal, model()).start(["Which line?"])
    journal.fail(first.id, "lost")
    journal.delete(first.id)
    journal.fail(other.id, "lost")
    opened = model()
    assert session(journal, opened).resume(other.id).plan.chunks == other.plan.chunks  # cut anew, and kept with it
    assert opened.engine.tokenizer.asked > 2 * len(TEXT)
    assert asked_to_begin(journal) < len(TEXT) / 10


def test_chunks_that_another_version_cut_are_not_used(journal, monkeypatch) -> None:
    asked_to_begin(journal)
    monkeypatch.setattr("memagent.cuts.CUTTING", chunking.CUTTING + 1)
    assert asked_to_begin(journal) > 2 * len(TEXT)


@pytest.mark.parametrize(
    "broken",
    [
        {"characters": [10], "tokens": [10], "settled": 0},
        {"characters": [5000, len(TEXT) - 5000], "tokens": [490, 480], "settled": 0},
        {"characters": [len(TEXT)], "tokens": [90, 80], "settled": 0},
        {"characters": [len(TEXT)], "tokens": [len(TEXT)], "settled": 0},
    ],
)
def test_chunks_that_are_not_those_of_the_document_are_not_used(journal, broken) -> None:
    opened = model()
    one = session(journal, opened)
    [begun] = one.start(["Which sea?"])
    name = f"{chunking.CUTTING}/{one.settings.identity}"
    journal.keep_cuts(begun.id, [Cut(document=one.document.digest, limit=500, tokenizer=name, chunks=broken)])
    assert journal.cut(one.document.digest, 500, name).chunks == broken
    assert session(journal, model()).plan("Which sea?").chunks == begun.plan.chunks


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


def test_chunks_come_back_as_they_were() -> None:
    made = cut(StringText(TEXT), ByteTokenizer(), 50)
    again = Chunks.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    assert (again.tokens, again.settled, again.digest()) == (made.tokens, made.settled, made.digest())
    assert made.hold(StringText(TEXT), ByteTokenizer(), 50)
    assert not made.hold(StringText(TEXT), ByteTokenizer(), 40)
    assert not Chunks().hold(StringText(""), ByteTokenizer(), 50)


def test_a_dry_run_and_a_reading_without_a_journal_cut_for_themselves() -> None:
    assert asked_to_begin(None) > 2 * len(TEXT)
