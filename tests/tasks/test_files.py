"""Sample files: what is written is read back, and what is wrong is named by line and field."""

from __future__ import annotations

import json
import os
import sys

import pytest

from memagent.core.types import Span
from memagent.documents import from_text
from memagent.errors import OutputError, TaskError
from memagent.tasks.files import SampleFile, Shared, check_replaceable, sample_line
from memagent.tasks.lazy_text import LazyText
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
        document=LazyText(pieces, BASE),
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


def test_the_document_of_a_sample_can_be_read_like_any_text():
    with from_text(sample(1).document) as document:
        assert document.read(0, len(document)) == str(sample(1).document)


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
        ({**LINE, "document": 5}, "line 2, document: .*, not 5"),
        ({**LINE, "documnet": "x"}, "line 2, documnet: there is no such field; there are id, task, question, document,"),
        ({"qestion": "q", "document": "d", "answers": ["x"]}, "line 2, qestion: there is no such field"),
        ({"document": "d", "answers": ["x"]}, "line 2, question: Field required"),
        (
            {**LINE, "document": {"file": "b.text", "sha": "00"}},
            r"line 2, document\.sha: there is no such field; there are file,",
        ),
        ({**LINE, "document": {"pieces": []}}, r"line 2, document\.file: Field required"),
        (
            {**LINE, "document": {"file": "b.text", "pieces": [[0, "9"]]}},
            r"line 2, document\.pieces\.0\.1: .*integer, not '9'",
        ),
        ({**LINE, "mode": "some"}, "line 2, mode"),
        ({**LINE, "mode": "some", "facts": [{"text": "The code", "start": -1, "end": 9}]}, "line 2, mode"),
        ({**LINE, "tokens": "many"}, "line 2, tokens: .*, not 'many'"),
        ({**LINE, "facts": [{"text": "The code", "start": 1, "end": 9}]}, r"line 2, facts\.0: .*characters 1 to 9"),
        ({**LINE, "facts": [{"text": "The code", "start": -1, "end": 9}]}, r"line 2, facts\.0\.start"),
        ({**LINE, "document": {"file": "gone.text"}}, r"line 2, document\.file: .*gone\.text"),
        ({**LINE, "document": {"file": "b.text", "pieces": [[0, 999]]}}, r"line 2, document\.pieces\.0"),
        ({**LINE, "document": {"file": "b.text", "pieces": [[5, 2]]}}, r"line 2, document\.pieces\.0"),
        ({**LINE, "document": {"file": "b.text", "sha256": "00"}}, r"line 2, document\.sha256: .*has changed"),
        ({**LINE, "id": "first"}, "line 2, id: 'first' stands in line 1 already"),
        ('{"question": "q", "document": "d", "answers": ["x"], "meta": {"depth": NaN}}', "line 2: .*NaN"),
        ('{"question": "q", "document": "d", "answers": ["x"], "meta": {"depth": -Infinity}}', "line 2: .*-Infinity"),
        ('{"question": "q", "document": "d", "answers": ["x"], "meta": {"depth": 1e999}}', "line 2: .*1e999"),
        ({**LINE, "meta": {"target": "long"}}, r"line 2, meta\.target"),
        ({**LINE, "meta": {"target": None}}, r"line 2, meta\.target"),
        ({**LINE, "meta": {"target": True}}, r"line 2, meta\.target"),
        ({**LINE, "meta": {"target": 4096.0}}, r"line 2, meta\.target"),
        ({**LINE, "meta": {"target": 0}}, r"line 2, meta\.target"),
        ({**LINE, "meta": {"target": 10**12 + 1}}, r"line 2, meta\.target"),
        ({**LINE, "tokens": 10**12 + 1}, "line 2, tokens"),
        ({**LINE, "tokens": 10**5000 if sys.get_int_max_str_digits() == 0 else 10**4000}, "line 2, tokens"),
        ({**LINE, "document": "17 \ud800"}, "line 2, document: half of a surrogate"),
        ({**LINE, "document": {"file": "b.text", "pieces": ["\udc00"]}}, r"line 2, document\.pieces\.0: half"),
        ({**LINE, "question": "\udfff?"}, "line 2, question: half"),
        ({**LINE, "answers": ["17", "\ud800"]}, r"line 2, answers\.1: half"),
        ({**LINE, "meta": {"a": {"b": "\ud800"}}}, r"line 2, meta\.a\.b: half"),
        ({**LINE, "meta": {"a": {"\ud800": 1}}}, r"line 2, meta\.a: half .*name of a field"),
        ({**LINE, "\ud800": 1}, "line 2, the line: half .*name of a field"),
        ('{"question": "q", "meta": ' + '{"a": ' * 80 + "1" + "}" * 81, "line 2, meta: .*more than 64 deep"),
        ('{"question": "q", "meta": ' + "[" * 50_000, "line 2, the line: .*more than 64 deep"),
        ("[" * 500 + "]" * 500, "line 2, 0: .*more than 64 deep"),
        ({**LINE, "document": {"file": "/etc/hostname"}}, r"line 2, document\.file: /etc/hostname leads out"),
        ({**LINE, "document": {"file": "../other.text"}}, r"line 2, document\.file: \.\./other\.text leads out"),
        ({**LINE, "document": {"file": "link.text"}}, r"line 2, document\.file: link\.text leads out"),
        ({**LINE, "document": {"file": "folder/other.text"}}, r"line 2, document\.file: folder/other\.text leads out"),
        ({**LINE, "document": {"file": "circle"}}, r"line 2, document\.file"),
        ({**LINE, "document": {"file": "b\0.text"}}, r"line 2, document\.file"),
        ({key: LINE[key] for key in ("question", "document")}, "line 2, answers"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, line, named):
    folder = tmp_path / "samples"
    folder.mkdir()
    (tmp_path / "other.text").write_text(BASE, encoding="utf-8")
    (folder / "b.text").write_text(BASE, encoding="utf-8")
    (folder / "link.text").symlink_to(tmp_path / "other.text")
    (folder / "folder").symlink_to(tmp_path)
    (folder / "circle").symlink_to("circle")
    with pytest.raises(TaskError, match=named) as caught:
        SampleFile.open(write(folder / "s.jsonl", {**LINE, "id": "first"}, line))
    str(caught.value).encode()


def test_what_is_not_wrong(tmp_path):
    folder = tmp_path / "samples"
    (folder / "texts").mkdir(parents=True)
    (folder / "texts" / "book.txt").write_text(BASE, encoding="utf-8")
    (folder / "link.txt").symlink_to("texts/book.txt")
    (tmp_path / "seen").symlink_to(folder)
    names = ("texts/book.txt", "texts/../texts/book.txt", "link.txt")
    lines = [{**LINE, "document": {"file": name}} for name in names]
    lines.append(
        {**LINE, "document": "Smile: \U0001f600.", "tokens": 10**12, "meta": {"target": 10**12, "a": [[0.5], None]}}
    )
    write(folder / "s.jsonl", *lines)
    assert len(list(SampleFile.open(tmp_path / "seen" / "s.jsonl"))) == 4


def test_a_file_that_changes_under_way_is_noticed(tmp_path):
    path = write(tmp_path / "s.jsonl", LINE, {**LINE, "question": "Where is it?"})
    file = SampleFile.open(path)
    write(path, LINE, {**LINE, "question": "Which is it?"})
    assert file.load("line-1").question == LINE["question"]
    with pytest.raises(TaskError, match=r"s\.jsonl, line 2: the file has changed"):
        file.load("line-2")
    write(path, LINE)
    with pytest.raises(TaskError, match=r"s\.jsonl, line 2: the file has changed"):
        file.load("line-2")


def test_files_that_are_not_there_empty_or_binary(tmp_path):
    with pytest.raises(TaskError, match=r"gone\.jsonl: cannot be read"):
        SampleFile.open(tmp_path / "gone.jsonl")
    with pytest.raises(TaskError, match="no sample"):
        SampleFile.open(write(tmp_path / "empty.jsonl", ""))
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(TaskError, match="line 1"):
        SampleFile.open(tmp_path / "binary.jsonl")


@pytest.mark.parametrize(
    "text",
    [
        *("# Read me\n", "{not json}\n", "[1]\n", '{"name": "x"}\n', "{\n", "\n", "\0\xff\n"),
        *('["question"]\n', "[" * 99_999),
        json.dumps(LINE) + "\n",  # samples that somebody wrote
        '{"_id": "5a8", "question": "Who?", "answer": "Ada", "context": []}\n',  # questions of HotpotQA
    ],
)
def test_only_sample_files_that_were_made_here_may_be_replaced(tmp_path, text):
    path = tmp_path / "README.md"
    check_replaceable(path)
    path.write_text("")
    check_replaceable(path)
    write(path, sample_line(sample(), None), "anything")
    check_replaceable(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    check_replaceable(path)
    path.write_text(text, encoding="latin-1")
    with pytest.raises(OutputError, match=r"README\.md exists and is not a sample file that memagent made: choose"):
        check_replaceable(path)
    assert path.read_text(encoding="latin-1") == text


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to the pipe").symlink_to("pipe")
    (tmp_path / "circle").symlink_to("circle")
    for name in ("pipe", "to the pipe", "circle"):
        with pytest.raises(OutputError, match=f"{name} is not a file that can be replaced"):
            check_replaceable(tmp_path / name)


def test_a_sample_may_name_its_scorer(tmp_path):
    letter = {**LINE, "answers": ["A"], "scorer": "choice"}
    assert SampleFile.open(write(tmp_path / "s.jsonl", letter)).load("line-1").scorer == "choice"
    assert '"scorer": "choice"' in sample_line(SampleFile.open(tmp_path / "s.jsonl").load("line-1"), None)
    assert "scorer" not in sample_line(sample(), None)
    for line, message in (
        ({**LINE, "answers": ["A"]}, "line 1, answers: .* does not score 1$"),
        ({**letter, "scorer": "bleu"}, "line 1, scorer: no scorer 'bleu'; known: strict"),
        ({**LINE, "scorer": "mrcr"}, r"line 1, answers: .* its scorer needs meta\.prefix"),
    ):
        with pytest.raises(TaskError, match=message):
            SampleFile.open(write(tmp_path / "s.jsonl", line))
