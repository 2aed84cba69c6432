"""Sample files: what is written is read back, and what is wrong is named by line and field."""

from __future__ import annotations

import json

import pytest

from memagent.core.types import Span
from memagent.errors import TaskError
from memagent.tasks.files import SampleFile, Shared, atomic_file, sample_line
from memagent.tasks.rope import Rope
from memagent.tasks.samples import Fact, Sample

BASE = "It was a calm day at sea. Nobody on board said a word. "
LINE = {"question": "What is the code?", "document": "The code is 17. It rained.", "answers": ["17"]}


def write(path, *lines):
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines), encoding="utf-8")
    return path


def sample(number=0, pieces=None):
    pieces = pieces or [Span(start=0, end=25), " The code of é is 17.", Span(start=25, end=len(BASE))]
    fact = Fact(text="The code of é is 17.", start=26, end=46, key="é", value="17")
    return Sample(
        id=f"s{number}",
        task="t",
        question="What is the code of é?",
        document=Rope(pieces, BASE),
        answers=("17", "seventeen"),
        facts=(fact,),
        tokens=20,
        seed=3,
        meta={"target": 20, "depth": 0.5},
    )


@pytest.mark.parametrize("shared", [False, True])
def test_samples_come_back_as_they_were_written(tmp_path, shared):
    import hashlib

    link = Shared("base.text", hashlib.sha256(BASE.encode()).hexdigest()) if shared else None
    (tmp_path / "base.text").write_text(BASE, encoding="utf-8")
    path = write(tmp_path / "s.jsonl", *(sample_line(sample(number), link) for number in range(3)))
    file = SampleFile.open(path)
    assert [entry.id for entry in file.entries] == ["s0", "s1", "s2"]
    assert file.load("s1") == sample(1)
    assert list(file) == [sample(0), sample(1), sample(2)]
    assert ("calm day" in path.read_text(encoding="utf-8")) is not shared


def test_the_least_a_user_must_write(tmp_path):
    file = SampleFile.open(write(tmp_path / "s.jsonl", LINE, "", LINE))
    assert [entry.id for entry in file.entries] == ["line-1", "line-3"]
    loaded = file.load("line-3")
    assert (loaded.task, loaded.mode, loaded.tokens, loaded.facts) == ("custom", "any", 0, ())


def test_a_whole_text_file_is_a_document(tmp_path):
    (tmp_path / "book.txt").write_text(BASE, encoding="utf-8")
    file = SampleFile.open(write(tmp_path / "s.jsonl", {**LINE, "document": {"file": "book.txt"}}))
    assert str(file.load("line-1").document) == BASE


def test_the_digest_changes_with_the_shared_text(tmp_path):
    path = write(tmp_path / "s.jsonl", {**LINE, "document": {"file": "book.txt"}})
    (tmp_path / "book.txt").write_text("one", encoding="utf-8")
    before = SampleFile.open(path).sha256
    (tmp_path / "book.txt").write_text("two", encoding="utf-8")
    assert SampleFile.open(path).sha256 != before


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{not json", "line 2: not a line of JSON"),
        ("[1, 2]", "line 2, the line"),
        ({**LINE, "answers": []}, "line 2, answers"),
        ({**LINE, "answers": [""]}, r"line 2, answers\.0"),
        ({**LINE, "answers": ["the"]}, "line 2, answers: .*does not score 1"),
        ({**LINE, "answers": "17"}, "line 2, answers"),
        ({**LINE, "question": ""}, "line 2, question"),
        ({**LINE, "document": ""}, "line 2, document: it is empty"),
        ({**LINE, "document": 5}, "line 2, document"),
        ({**LINE, "documnet": "x"}, "line 2, documnet"),
        ({**LINE, "mode": "some"}, "line 2, mode"),
        ({**LINE, "tokens": "many"}, "line 2, tokens"),
        ({**LINE, "facts": [{"text": "The code", "start": 1, "end": 9}]}, r"line 2, facts\.0: .*characters 1 to 9"),
        ({**LINE, "facts": [{"text": "The code", "start": -1, "end": 9}]}, r"line 2, facts\.0\.start"),
        ({**LINE, "document": {"file": "gone.text"}}, r"line 2, document\.file: .*gone\.text"),
        ({**LINE, "document": {"file": "b.text", "pieces": [[0, 999]]}}, r"line 2, document\.pieces\.0"),
        ({**LINE, "document": {"file": "b.text", "pieces": [[5, 2]]}}, r"line 2, document\.pieces\.0"),
        ({**LINE, "document": {"file": "b.text", "sha256": "00"}}, r"line 2, document\.sha256: .*has changed"),
        ({**LINE, "id": "first"}, "line 2, id: 'first' stands in line 1 already"),
        ({key: LINE[key] for key in ("question", "document")}, "line 2, answers"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, line, named):
    (tmp_path / "b.text").write_text(BASE, encoding="utf-8")
    with pytest.raises(TaskError, match=named):
        SampleFile.open(write(tmp_path / "s.jsonl", {**LINE, "id": "first"}, line))


def test_files_that_are_not_there_empty_or_binary(tmp_path):
    with pytest.raises(TaskError, match=r"gone\.jsonl: cannot be read"):
        SampleFile.open(tmp_path / "gone.jsonl")
    with pytest.raises(TaskError, match="no sample"):
        SampleFile.open(write(tmp_path / "empty.jsonl", ""))
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(TaskError, match="line 1"):
        SampleFile.open(tmp_path / "binary.jsonl")


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "out.jsonl"

    def fails():
        with atomic_file(path) as stream:
            stream.write("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert list(path.parent.iterdir()) == []
    with atomic_file(path) as stream:
        stream.write("whole")
    assert path.read_text(encoding="utf-8") == "whole"
    (tmp_path / "a file").write_text("")
    with pytest.raises(TaskError, match="cannot be written"), atomic_file(tmp_path / "a file" / "out.jsonl"):
        pass
