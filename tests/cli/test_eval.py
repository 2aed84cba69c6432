"""`memagent eval`, `memagent validate`: real processes, killed in earnest, and what people mistype."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.conftest import FACT, reader
from tests.faults import Fault, FaultServer

QUESTION = "What is the code for amber-falcon?"
LINES = [f"Line {number} tells of the sea and of nothing else in particular." for number in range(60)]


@pytest.fixture
def samples(tmp_path):
    rows = []
    for number in range(5):
        text = "\n".join([*LINES[: 10 * number], FACT, *LINES[10 * number :]])
        row = {"id": f"s{number}", "task": "codes", "question": QUESTION, "document": text, "answers": ["4821973"]}
        rows.append({**row, "tokens": 900, "meta": {"target": 900}})
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def options(server):
    return ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100", "--memory-tokens", "50"]


def records(run):
    return {values["sample"]: values for values in map(json.loads, (run / "records.jsonl").read_text().splitlines())}


def answers(run):
    """Everything of the records that does not tell time."""
    found = records(run)
    for values in found.values():
        del values["wall"], values["seconds"]
        for turn in values["turns"]:
            del turn["seconds"]
    return found


def test_a_run_prints_accuracy_and_where_to_go_on(memagent, samples, server, tmp_path):
    result = memagent("eval", samples, "-o", tmp_path / "run", *options(server))
    assert result.code == 0
    assert "codes" in result.out
    assert "100.0 %  of 5 readings" in result.out
    assert "memagent report" in result.out
    again = memagent("eval", samples, "-o", tmp_path / "run", "--json", *options(server))
    assert again.json["cells"] == [{"task": "codes", "tokens": 900, "readings": 5, "strict": 1.0}]


@pytest.mark.parametrize(("lengths", "said"), [([900], "  900 tokens"), ([900, 901, 902], "900 to 902 tokens")])
def test_lengths_are_told_one_by_one_unless_every_document_has_its_own(memagent, samples, server, tmp_path, lengths, said):
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    rows = [{**row, "meta": {"target": length}} for row, length in zip(rows, lengths, strict=False)]
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = memagent("eval", samples, "-o", tmp_path / "run", *options(server))
    assert f"{said}  100.0 %  of {len(rows)} readings" in result.out


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("after", [3, 17, 40])
def test_killed_it_goes_on_and_repeats_no_turn(memagent, samples, tmp_path, kill, after):
    with FaultServer(reader) as server:
        memagent("eval", samples, "-o", tmp_path / "whole", *options(server))
        whole = len(server.requests)
    with FaultServer(reader, delay=0.02) as server:
        command = ["eval", str(samples), "-o", str(tmp_path / "run"), "--concurrency", "2", *options(server)]
        process = subprocess.Popen(
            [sys.executable, "-m", "memagent", *command], stderr=subprocess.PIPE, text=True, env=os.environ
        )
        end = time.monotonic() + 60
        while len(server.requests) < after:
            assert time.monotonic() < end
            time.sleep(0.005)
        process.send_signal(kill)
        _, said = process.communicate(timeout=30)
        if kill == signal.SIGINT:
            assert process.returncode == 130
            assert "to continue the run in" in said
        asked = len(server.requests)
        result = memagent(*command)
        assert result.code == 0, result.err
        assert len(server.requests) - asked <= whole - asked + 4
    assert answers(tmp_path / "run") == answers(tmp_path / "whole")


def test_a_server_that_refuses_stops_the_run_and_loses_nothing(memagent, samples, tmp_path):
    def refuses(number):
        return Fault("status", status=401) if 25 <= number < 28 else None

    with FaultServer(reader, faults=refuses) as server:
        command = ["eval", samples, "-o", tmp_path / "run", "--concurrency", "1", *options(server)]
        result = memagent(*command)
        assert result.code == 4
        assert "401" in result.err
        assert {values["error_kind"] for values in records(tmp_path / "run").values()} == {None}
        result = memagent(*command)
        assert "100.0 %  of 5" in result.out, result.err


def test_documents_too_long_for_a_reader_are_a_result(memagent, samples, server, tmp_path):
    command = ["eval", samples, "-o", tmp_path / "run", "--reader", "direct", "--through-memory", *options(server)]
    for _ in range(2):
        result = memagent(*command)
        assert result.code == 0
        assert "5 (too_long)" in result.out


@pytest.mark.parametrize("reader_name", ["direct", "truncate", "retrieve", "append"])
def test_every_reader_works_on_a_server(memagent, samples, server, tmp_path, reader_name):
    few = ["--passages", 2] if reader_name == "retrieve" else []
    result = memagent("eval", samples, "-o", tmp_path / "run", "--reader", reader_name, *few, *options(server))
    assert result.code == 0, result.err
    assert {values["reader"] for values in records(tmp_path / "run").values()} == {reader_name}


def test_no_key_is_written(memagent, samples, server, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.setattr("sys.argv", ["memagent", "eval", "--base-url", "http://user:hunter2@host/v1"])
    secret = server.url.replace("http://", "http://user:hunter2@")
    parts = [part if not part.startswith("http") else secret for part in options(server)]
    memagent("eval", samples, "-o", tmp_path / "run", *parts)
    written = "".join(path.read_text(errors="replace") for path in (tmp_path / "run").iterdir())
    assert "hunter2" not in written
    assert "sk-very-secret" not in written


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (["--reader", "guess"], "no reader 'guess': use one of memory, gated, parallel, search, reread, recall"),
        (["--reader", "whole"], "the reader 'whole' is called 'direct' now"),
        (["--reader", "refine"], "the reader 'refine' is called 'append' now"),
        (["--by-turns"], "--by-turns is now named --through-memory"),
        (["--passages", "4"], "the reader 'memory' has no option 'passages'"),
        (["--samples-per-question", "3"], "temperature"),
        (["--reader", "retrieve", "--passages", "400"], "400 passages do not fit"),
        (["--chunk-tokens", "3"], "chunk budget is 3"),
    ],
)
def test_what_people_mistype(memagent, samples, server, tmp_path, change, named):
    result = memagent("eval", samples, "-o", tmp_path / "run", *options(server), *change)
    assert result.code == 2
    assert named in " ".join(result.err.split())
    assert not (tmp_path / "run/records.jsonl").exists() or not records(tmp_path / "run")


def test_validate_names_line_and_field(memagent, samples):
    good = memagent("validate", samples)
    assert good.code == 0
    assert "5 samples, all valid" in good.out
    assert memagent("validate", samples, "--json").json["tasks"]["codes"]["samples"] == 5
    rows = samples.read_text().splitlines()
    samples.write_text("\n".join([*rows[:2], rows[2].replace('"answers": ["4821973"]', '"answers": []'), *rows[3:]]))
    bad = memagent("validate", samples)
    assert bad.code == 2
    assert "line 3, answers" in bad.err
