"""Files of jobs: what a line may say, and that every mistake is named with its line and field."""

from __future__ import annotations

import json

import pytest

from memagent.batch.jobs import JobFile
from memagent.errors import ConfigError

JOB = {"text": "The code is 4.", "question": "What is the code?"}


def opened(folder, *rows, raw=None):
    path = folder / "jobs.jsonl"
    path.write_text(raw if raw is not None else "".join(json.dumps(row) + "\n" for row in rows))
    return JobFile.open(path)


def test_jobs_are_loaded_one_at_a_time_with_paths_from_the_folder_of_the_file(tmp_path):
    file = opened(
        tmp_path,
        {"id": "a", "document": "a.txt", "question": " Who? ", "meta": {"n": 1}},
        {"id": "b", "document": ["b/*.txt", "/c.txt"], "questions": ["Who?", "When?"], "reader": "gated"},
        {"id": "c", "text": "Hello.", "question": "Who?", "schema": {"type": "object"}},
    )
    a, b, c = file
    assert (len(file), file.questions) == (3, 4)
    assert (a.paths, a.questions, a.meta) == ((str(tmp_path / "a.txt"),), ("Who?",), {"n": 1})
    assert (b.given, b.paths) == (("b/*.txt", "/c.txt"), (str(tmp_path / "b/*.txt"), "/c.txt"))
    assert (c.text, c.paths) == ("Hello.", ())
    assert [(form.reader, bool(form.schema)) for form in file.forms] == [(None, False), ("gated", False), (None, True)]
    assert file.missing == [(1, "a.txt"), (2, "/c.txt")]


def test_an_id_follows_from_what_a_line_says_and_from_nothing_else(tmp_path):
    [one] = opened(tmp_path, JOB)
    [same] = opened(tmp_path, raw="\n" + json.dumps(dict(reversed(JOB.items())), indent=None, separators=(",", ":")))
    [other] = opened(tmp_path, {**JOB, "meta": 1})
    assert one.id == same.id != other.id


def test_a_schema_may_be_a_file(tmp_path):
    (tmp_path / "s.json").write_text('{"type": "object"}')
    file = opened(tmp_path, {**JOB, "schema": "s.json"}, {**JOB, "schema": {"type": "object"}})
    assert len(file.forms) == 1


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**JOB, "querstion": "?"}, "line 2, querstion: there is no such field; there are document, text,"),
        ({"question": "Who?"}, "line 2, the whole: a job has either 'document' or 'text'"),
        ({**JOB, "document": "a.txt"}, "line 2, the whole: a job has either 'document' or 'text'"),
        ({"text": "A."}, "line 2, the whole: a job has either 'question' or 'questions'"),
        ({"text": "A.", "questions": []}, "line 2, questions: "),
        ({"text": "A.", "questions": ["Who?", " Who?"]}, "line 2, the whole: a question stands twice"),
        ({"text": "A.", "question": 7}, "line 2, question: "),
        ({"text": "A.", "question": " "}, "line 2, question: "),
        ({**JOB, "id": "first"}, "line 2, id: 'first' stands in line 1 already"),
        ({**JOB, "schema": "nowhere.json"}, "line 2, schema: cannot read the schema"),
        ({**JOB, "schema": {"type": "thing"}}, "line 2, schema: the schema is no JSON Schema"),
        ({"document": "-", "question": "Who?"}, "line 2, document: '-' is standard input"),
        ([1], "line 2, the whole: a job is an object, not a list"),
    ],
)
def test_what_is_wrong_is_named_with_line_and_field(tmp_path, row, said):
    with pytest.raises(ConfigError) as refused:
        opened(tmp_path, {**JOB, "id": "first"}, row)
    assert f"jobs.jsonl, {said}" in str(refused.value)


def test_all_mistakes_are_named_up_to_ten(tmp_path):
    with pytest.raises(ConfigError) as refused:
        opened(tmp_path, *[{"text": str(number), "question": ""} for number in range(13)])
    assert str(refused.value).count("jobs.jsonl, line") == 10
    assert str(refused.value).endswith("and 3 more")


def test_the_same_job_twice_is_refused_unless_it_has_ids(tmp_path):
    with pytest.raises(ConfigError, match="line 2, the whole: the same job stands in line 1 already"):
        opened(tmp_path, JOB, JOB)
    assert len(opened(tmp_path, {**JOB, "id": "a"}, {**JOB, "id": "b"})) == 2


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("NaN", "NaN is not a JSON number"),
        ("-Infinity", "-Infinity is not a JSON number"),
        ("1e999", "1e999 is too large a number"),
        ("1" * 5000, "a number of 5,000 digits is too large"),
    ],
)
def test_numbers_that_no_record_could_hold_are_refused(tmp_path, number, said):
    good, bad = json.dumps(JOB), json.dumps(JOB)[:-1] + f', "meta": {{"n": {number}}}}}'
    with pytest.raises(ConfigError, match=f"jobs.jsonl, line 2, the whole: not JSON: {said}"):
        opened(tmp_path, raw=f"{good}\n{bad}\n")


@pytest.mark.parametrize(("raw", "said"), [("{", "line 1, the whole: not JSON"), ("\n \n", "no jobs")])
def test_a_file_without_jobs_is_refused(tmp_path, raw, said):
    with pytest.raises(ConfigError, match=said):
        opened(tmp_path, raw=raw)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the jobs"):
        JobFile.open(tmp_path / "none.jsonl")


def test_a_file_that_changes_under_way_is_noticed(tmp_path):
    file = opened(tmp_path, {**JOB, "id": "a"}, {**JOB, "id": "b"})
    jobs = iter(file)
    next(jobs)
    opened(tmp_path, {**JOB, "id": "a"}, {**JOB, "id": "c"})
    with pytest.raises(ConfigError, match="line 2: the file has changed"):
        next(jobs)


def test_long_documents_are_read_first(tmp_path):
    for name, size in (("short", 10), ("long", 1000), ("middle", 100)):
        (tmp_path / f"{name}.txt").write_text("x" * size)
    lines = [{"document": f"{name}.txt", "question": "?", "id": name} for name in ("short", "long", "*", "middle", "gone")]
    lines += [{"document": ["long.txt", "middle.txt"], "question": "?", "id": "both"}]
    lines += [{"text": "y" * 500, "question": "?", "id": "text"}, {"document": ".", "question": "?", "id": "folder"}]
    path = tmp_path / "jobs.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    jobs = JobFile.open(path)
    order = [job.id for job in jobs.longest_first()]
    assert order == ["both", "long", "text", "middle", "short", "*", "gone", "folder"]
    assert [job.number for job in jobs.longest_first()] == [list(jobs.numbers()).index(id) for id in order]
    assert [job.id for job in jobs] == [line["id"] for line in lines]


def test_the_questions_of_a_job_are_not_missed_if_its_line_is_gone(tmp_path):
    path = tmp_path / "jobs.jsonl"
    path.write_text(json.dumps({"text": "A.", "questions": ["Who?", "When?"]}) + "\n")
    file = JobFile.open(path)
    assert file.asked(0) == ("Who?", "When?")
    path.write_text("changed\n")
    assert file.asked(0) == ()
    path.unlink()
    assert file.asked(0) == ()
