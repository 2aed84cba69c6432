"""The BM25 index of a long document is made once: the next process finds it beside the journal."""

from __future__ import annotations

import random
import shutil

import pytest

import memagent
from memagent import ranking
from memagent.cli.estimate import estimate
from memagent.core import Span
from memagent.documents import from_text
from memagent.models.open import OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.session import Session
from memagent.settings import make_settings

WORDS = [f"word{number}" for number in range(2000)]
QUERIES = ["word7 word8 word9", "word1999", "the word3 of WORD4, or 海?", "nothing that is there", ""]


def document(megabytes: float, seed: int = 1):
    rng = random.Random(seed)
    lines = [" ".join(rng.choices(WORDS, k=20)) for _ in range(int(megabytes * 1e6 / 150))]
    return from_text("\n".join([*lines, "海 stands in the last line."]))


LONG = document(5)
PASSAGES = [Span(start=start, end=min(start + 15_000, len(LONG))) for start in range(0, len(LONG), 15_000)]


class Read:
    """A text that counts how much of it is read."""

    def __init__(self, text) -> None:
        self.text, self.read_characters = text, 0

    def __len__(self) -> int:
        return len(self.text)

    def read(self, start: int, end: int) -> str:
        self.read_characters += end - start
        return self.text.read(start, end)


def asked(folder, text=LONG, passages=PASSAGES):
    """The rankings of a process that has made no index yet, and how much of the text it read for them."""
    read = Read(text)
    ranking._indexes.clear()
    return [ranking.bm25(read, passages, query, folder=folder) for query in QUERIES], read.read_characters


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "indexes" / "of-this-document"


def test_the_second_process_ranks_alike_without_reading_the_document(folder):
    made, read = asked(folder)
    assert read == len(LONG)
    assert made[2][0] == len(PASSAGES) - 1  # where 海 stands
    assert asked(folder) == (made, 0)
    assert asked(None) == (made, len(LONG))
    assert [path.stat().st_mode & 0o077 for path in (folder, *folder.iterdir())] == [0, 0]


def test_other_passages_have_an_index_of_their_own(folder):
    asked(folder)
    halves = [Span(start=0, end=len(LONG) // 2), Span(start=len(LONG) // 2, end=len(LONG))]
    made, read = asked(folder, passages=halves)
    assert read == len(LONG)
    assert asked(folder, passages=halves) == (made, 0)
    assert len(list(folder.iterdir())) == 2


def test_a_short_document_leaves_nothing_on_disk(folder):
    text = document(0.1)
    asked(folder, text, [Span(start=0, end=len(text))])
    assert not folder.exists()


def test_a_damaged_index_is_made_again(folder):
    made, _ = asked(folder)
    for damage in ("cut", "empty", "missing", "other"):
        [kept] = folder.iterdir()
        for path in sorted(kept.iterdir()):
            if damage == "missing":
                path.unlink()
            elif damage == "other":
                path.write_bytes(b"[]")
            else:
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 if damage == "cut" else 0])
            assert asked(folder) == (made, len(LONG)), (damage, path.name)
            assert asked(folder) == (made, 0), (damage, path.name)
            [kept] = folder.iterdir()


def test_an_index_that_cannot_be_stored_is_used_all_the_same(folder, monkeypatch):
    made, _ = asked(None)
    folder.parent.mkdir()
    folder.write_text("a file where the folder should be")
    assert asked(folder)[0] == made

    folder.unlink()
    monkeypatch.setattr("bm25s.BM25.save", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert asked(folder)[0] == made
    assert list(folder.iterdir()) == []


def test_indexes_go_with_the_last_reading_of_their_document(tmp_path):
    def begun(journal, text, question):
        opened = OpenModel(engine=ScriptedModel(lambda turn: "noted"))
        settings = make_settings(opened, model="scripted", profile="default", reader="search", chunk_tokens=3000)
        [reading] = Session(text, opened, settings, journal).start([question])
        return reading.id

    ranking._indexes.clear()
    other = document(4.5, seed=2)
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        first, second = begun(journal, LONG, "Where is word1?"), begun(journal, LONG, "Where is word2?")
        third = begun(journal, other, "Where is word1?")
        assert len(list((tmp_path / "journal.sqlite3.indexes").iterdir())) == 2
        journal.delete(first)
        assert journal.beside(LONG.digest).exists()
        assert journal.beside(other.digest).exists()
        journal.delete(second)
        assert not journal.beside(LONG.digest).exists()
        assert journal.beside(other.digest).exists()
        (tmp_path / "journal.sqlite3.indexes" / "mine").mkdir()
        journal.delete(third)
        assert [path.name for path in (tmp_path / "journal.sqlite3.indexes").iterdir()] == ["mine"]
        shutil.rmtree(tmp_path / "journal.sqlite3.indexes")
        journal.delete(begun(journal, document(0.1), "Where is word1?"))


def test_a_dry_run_leaves_no_index(tmp_path):
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        opened = OpenModel(engine=ScriptedModel(lambda turn: "noted"))
        settings = make_settings(opened, model="scripted", profile="default", reader="retrieve", chunk_tokens=3000)

        def planned(*, only: bool) -> list[str]:
            ranking._indexes.clear()
            session = Session(LONG, opened, settings, journal)
            if only:
                estimate(session, ["Where is word1?"], None, None)
            else:
                list(session.plans(["Where is word1?"]))
            return [path.name for path in journal.beside(LONG.digest).glob("*")]

        assert planned(only=True) == []
        kept = planned(only=False)
        assert len(kept) == 1
        assert planned(only=True) == kept
