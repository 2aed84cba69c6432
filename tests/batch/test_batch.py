"""`memagent batch`: every question has one record, whatever fails; what was done stays done."""

from __future__ import annotations

import csv
import json
import re
import sys
import threading

import pytest

from memagent.batch import records as records_of
from memagent.batch.jobs import Job
from memagent.core import cut
from memagent.documents import Document
from memagent.errors import MemagentError
from tests.batch.conftest import LINE, SERVED, code, records, reply, timeless, write_jobs
from tests.faults import Fault, FaultServer


def options(server, out, *more):
    return ["-o", out, "--base-url", server.url, *SERVED, *more]


def test_each_question_has_a_record_with_what_ask_says_and_the_job(memagent, server, tmp_path):
    jobs = write_jobs(tmp_path, 3, meta={"lot": 5})
    result = memagent("batch", jobs, *options(server, tmp_path / "out"))
    assert result.code == 0, result.err
    assert "3 of 3 questions answered" in result.out
    asked = memagent(
        "ask", tmp_path / "d1.txt", "-q", "What is the code?", "--base-url", server.url, *SERVED, "--json", "--no-journal"
    ).json
    found = timeless(tmp_path / "out")
    one = found["j1", "What is the code?"]
    assert one["answer"] == code(1) == asked["answer"]
    assert (one["paths"], one["meta"], one["error"], one["error_kind"]) == (["d1.txt"], {"lot": 5}, None, None)
    for name in set(asked) - {"usage", "verification", "seconds", "reading", "turns_resumed"}:
        assert one[name] == asked[name], name
    assert not list((tmp_path / "out").glob("journal*"))


def test_the_table_has_the_order_of_the_jobs(memagent, server, tmp_path):
    jobs = write_jobs(tmp_path, 5, meta="é")
    memagent("batch", jobs, *options(server, tmp_path / "out"))
    rows = list(csv.DictReader((tmp_path / "out/results.csv").open(encoding="utf-8")))
    assert [(row["id"], row["answer"]) for row in rows] == [(f"j{n}", code(n)) for n in range(5)]
    assert (rows[0]["meta"], rows[0]["document"], rows[0]["turns"]) == ('"é"', "d0.txt", "4")


def test_records_of_a_job_have_the_order_of_its_questions(tmp_path):
    asked = [("A", "Who?"), ("A", "When?"), ("A", "Where?"), ("B", "Why?")]
    ended = [asked[3], asked[1], asked[2], asked[0]]
    lines = "".join(json.dumps({"id": id, "question": question}) + "\n" for id, question in ended)
    (tmp_path / "results.jsonl").write_text(lines)
    results = records_of.Results(
        tmp_path / "results.jsonl", {"A": 0, "B": 1}, lambda number: [q for id, q in asked if id == "AB"[number]]
    )
    assert [(one["id"], one["question"]) for one in results] == asked


def test_no_cell_of_the_table_is_a_formula(tmp_path):
    texts = ["=1+1", "+1-1", "-2+3", "@SUM(1)", "\t=1", "\r=1", "-5", "+1,200.50", "-5 %", "-1.5e-3", "a = b", "— none"]
    lines = [records_of.failed(Job(number=0, id=text, questions=(), form=0), text, MemagentError(text)) for text in texts]
    quote = {"cited_text": "=HYPERLINK(1)", "place": "-a.txt"}
    lines.append({**lines[0], "quotes": [quote], "unsupported": ["@x"], "meta": -5, "seconds": -1.5})
    lines[-1]["verification_error"] = "=gone"
    records_of.write_csv(lines, tmp_path / "results.csv")
    *rows, last = csv.DictReader((tmp_path / "results.csv").open(encoding="utf-8", newline=""))
    told = [f"'{text}" for text in texts[:6]] + texts[6:]
    assert [(row["id"], row["question"], row["error"]) for row in rows] == [(text,) * 3 for text in told]
    assert (last["quote"], last["place"], last["unsupported"]) == ("'=HYPERLINK(1)", "'-a.txt", "'@x")
    assert (rows[0]["verification_error"], last["verification_error"]) == ("", "'=gone")
    assert (last["meta"], last["seconds"]) == ("-5", "-1.5")


def test_questions_of_a_job_share_its_document_and_jobs_may_have_their_own_reader_and_schema(memagent, tmp_path):
    text = "\n".join([*map(LINE.format, range(20)), "The code is 7."])
    rows = [
        {"id": "two", "text": text, "questions": ["What is the code?", "Which code?"]},
        {"id": "data", "text": text, "question": "What is the code?", "schema": {"type": "object", "required": ["code"]}},
        {"id": "whole", "text": text, "question": "What is the code?", "reader": "direct"},
    ]

    def model(messages):
        prompt = messages[-1]["content"]
        return '{"code": 7}' if "JSON" in prompt and "<section>" not in prompt else reply(messages)

    (tmp_path / "jobs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with FaultServer(model) as server:
        more = options(server, tmp_path / "out", "--json", "--chunk-tokens", 400)
        result = memagent("batch", tmp_path / "jobs.jsonl", *more)
    found = timeless(tmp_path / "out")
    assert (result.json["jobs"], result.json["questions"]) == (3, 4)
    assert found["two", "Which code?"]["answer"] == found["two", "What is the code?"]["answer"] == "7"
    assert found["data", "What is the code?"]["data"] == {"code": 7}
    assert found["whole", "What is the code?"]["turns"] == 1


def test_a_document_that_cannot_be_read_is_a_failed_record_and_the_others_are_read(memagent, server, tmp_path):
    jobs = write_jobs(tmp_path, 4)
    (tmp_path / "d1.txt").unlink()
    (tmp_path / "d2.txt").write_text(" ")
    result = memagent("batch", jobs, *options(server, tmp_path / "out", "--json"))
    assert result.code == 4
    assert "1 of 4 jobs name documents that do not exist: line 2: d1.txt" in result.err
    assert (result.json["answered"], result.json["failures"]) == (2, {"document": 2})
    found = timeless(tmp_path / "out")
    assert "no such file" in found["j1", "What is the code?"]["error"]
    assert "nothing to read" in found["j2", "What is the code?"]["error"]
    (tmp_path / "d1.txt").write_text("The code is 12.")
    again = memagent("batch", jobs, *options(server, tmp_path / "out", "--json"))
    assert (again.code, again.json["failed"]) == (4, 2)  # what failed is done, too
    retried = memagent("batch", jobs, *options(server, tmp_path / "out", "--json", "--retry-failed"))
    assert (retried.json["answered"], retried.json["failed"]) == (3, 1)
    assert timeless(tmp_path / "out")["j1", "What is the code?"]["answer"] == "12"


def test_if_no_document_exists_nothing_is_begun(memagent, server, tmp_path):
    jobs = write_jobs(tmp_path, 2)
    jobs.rename(tmp_path / "home.jsonl")
    for number in range(2):
        (tmp_path / f"d{number}.txt").unlink()
    result = memagent("batch", tmp_path / "home.jsonl", *options(server, tmp_path / "out"))
    assert result.code == 2
    assert "2 of 2 jobs name documents that do not exist" in result.err
    assert not (tmp_path / "out").exists()


def test_a_failed_reading_goes_on_at_its_turn_when_it_is_retried(memagent, tmp_path):
    jobs = write_jobs(tmp_path, 1, lines=20)
    refused = Fault("status", status=400, body='{"error": {"message": "no"}}')
    with FaultServer(reply, faults=[None, None, refused]) as server:
        first = memagent("batch", jobs, *options(server, tmp_path / "out", "--json"))
        assert (first.code, first.json["failures"]) == (4, {"refused": 1})
        again = memagent("batch", jobs, *options(server, tmp_path / "out", "--json", "--retry-failed"))
        assert again.json["answered"] == 1
        [record] = records(tmp_path / "out")
        assert record["turns_resumed"] == 2
        assert len(server.requests) == record["turns"] + 1
    assert not list((tmp_path / "out").glob("journal*"))


def test_a_server_that_is_down_stops_the_batch_and_fails_no_job(memagent, tmp_path):
    jobs = write_jobs(tmp_path, 30)
    wrong = Fault("status", status=401, body='{"error": {"message": "wrong key"}}')
    down = [True]
    with FaultServer(reply, faults=lambda number: wrong if down[0] and number >= 5 else None) as server:
        result = memagent("batch", jobs, *options(server, tmp_path / "out", "--at-once", 3))
        assert result.code == 4
        assert "wrong key" in result.err
        assert len(records(tmp_path / "out")) < 3
        down[0] = False
        again = memagent("batch", jobs, *options(server, tmp_path / "out", "--json"))
    assert (again.code, again.json["answered"]) == (0, 30)


def test_other_settings_or_jobs_are_refused_with_what_differs(memagent, server, tmp_path):
    jobs = write_jobs(tmp_path, 2)
    memagent("batch", jobs, *options(server, tmp_path / "out"))
    other = memagent("batch", jobs, *options(server, tmp_path / "out", "--answer-tokens", 99))
    assert other.code == 2
    assert "settings" in other.err
    assert "99" in other.err
    jobs.write_text(jobs.read_text().replace("code?", "code, please?"))
    changed = memagent("batch", jobs, *options(server, tmp_path / "out"))
    assert changed.code == 2
    assert "jobs.sha256" in changed.err
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").touch()
    assert "does not contain a batch" in memagent("batch", jobs, *options(server, folder)).err


def test_finished_jobs_are_not_done_twice(memagent, server, tmp_path):
    jobs = write_jobs(tmp_path, 3)
    memagent("batch", jobs, *options(server, tmp_path / "out"))
    asked, before = len(server.requests), (tmp_path / "out/results.jsonl").read_bytes()
    result = memagent("batch", jobs, *options(server, tmp_path / "out", "--json"))
    assert (result.code, result.json["answered"], len(server.requests)) == (0, 3, asked)
    assert (tmp_path / "out/results.jsonl").read_bytes() == before


def test_a_document_that_changed_since_it_was_begun_is_read_afresh(memagent, tmp_path):
    jobs = write_jobs(tmp_path, 1, lines=20)
    refused = Fault("status", status=400, body='{"error": {"message": "no"}}')
    with FaultServer(reply, faults=[None, None, refused]) as server:
        memagent("batch", jobs, *options(server, tmp_path / "out"))
        (tmp_path / "d0.txt").write_text("\n".join([*map(LINE.format, range(30)), "The code is 5."]))
        memagent("batch", jobs, *options(server, tmp_path / "out", "--retry-failed"))
    [record] = records(tmp_path / "out")
    assert (record["answer"], record["turns_resumed"]) == ("5", 0)


def test_an_unknown_reader_is_refused_before_the_first_call(memagent, server, tmp_path):
    jobs = write_jobs(tmp_path, 1, reader="telepathy")
    jobs.write_text("\n" + jobs.read_text())
    result = memagent("batch", jobs, *options(server, tmp_path / "out"))
    assert (result.code, len(server.requests)) == (2, 0)
    assert f"{jobs}, line 2, reader: there is no reader 'telepathy': use one of" in " ".join(result.err.split())
    assert not (tmp_path / "out").exists()


def test_no_more_documents_are_open_than_are_read_at_once(memagent, tmp_path, monkeypatch):
    """The bound of memory: `--at-once` documents and readings, and an index of the jobs."""
    jobs, opened, most = write_jobs(tmp_path, 40, lines=3), set(), [0]
    lock, made, closed = threading.Lock(), Document.__init__, Document.close

    def init(self, *arguments):
        made(self, *arguments)
        with lock:
            opened.add(id(self))
            most[0] = max(most[0], len(opened))

    def close(self):
        with lock:
            opened.discard(id(self))
        closed(self)

    monkeypatch.setattr(Document, "__init__", init)
    monkeypatch.setattr(Document, "close", close)
    with FaultServer(reply, delay=0.01) as server:
        assert memagent("batch", jobs, *options(server, tmp_path / "out", "--at-once", 5)).code == 0
        assert server.peak <= 5
    assert most == [5]
    assert not opened


def test_a_dry_run_sums_over_the_jobs_and_calls_nothing(memagent, server, tmp_path):
    jobs = write_jobs(tmp_path, 3)
    (tmp_path / "d2.txt").unlink()
    result = memagent("batch", jobs, "--dry-run", "--base-url", server.url, *SERVED, "--json")
    alone = memagent(
        "ask", tmp_path / "d0.txt", "-q", "What is the code?", "--dry-run", "--base-url", server.url, *SERVED, "--json"
    )
    assert result.json["calls"] == 2 * alone.json["calls"]
    assert result.json["prompt_tokens"] == 2 * alone.json["prompt_tokens"]
    assert (result.json["jobs"], result.json["failing"], len(server.requests)) == (3, 1, 0)
    assert re.search(r"warning: job '\S+': '\S+d2\.txt': there is no such file", " ".join(result.err.split()))


def test_a_dry_run_cuts_a_document_of_many_jobs_once(memagent, server, tmp_path, monkeypatch):
    jobs = write_jobs(tmp_path, 2)
    jobs.write_text(jobs.read_text().replace("d1.txt", "d0.txt"))
    texts: list[object] = []

    def counted(text, tokenizer, limit, known=None):
        texts.append(text)
        return cut(text, tokenizer, limit, known)

    monkeypatch.setattr("memagent.cuts.cut", counted)
    result = memagent("batch", jobs, "--dry-run", "--base-url", server.url, *SERVED, "--json")
    assert (result.json["jobs"], result.json["failing"], len(texts)) == (2, 0, 1)


def test_options_that_do_not_go_together_are_refused(memagent, tmp_path):
    jobs = write_jobs(tmp_path, 1)
    assert "-o" in memagent("batch", jobs).err
    assert "--ray" in memagent("batch", jobs, "-o", tmp_path / "out", "--workers", 2).err


def test_parquet_needs_a_library_and_says_so_at_once(memagent, server, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = memagent("batch", write_jobs(tmp_path, 1), *options(server, tmp_path / "out", "--parquet"))
    assert result.code != 0
    assert "memagent[parquet]" in result.err
    assert not server.requests


def test_parquet_has_the_same_rows(memagent, server, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert memagent("batch", write_jobs(tmp_path, 3), *options(server, tmp_path / "out", "--parquet")).code == 0
    rows = parquet.read_table(tmp_path / "out/results.parquet").to_pylist()
    assert [(row["id"], row["answer"], row["turns"]) for row in rows] == [(f"j{n}", code(n), 4) for n in range(3)]
