"""An evaluation or a comparison whose server has moved: repeated with another address, it goes on where it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from memagent.evaluation.folder import RunFolder
from memagent.journal import Journal
from tests.cli import test_eval as of_eval
from tests.cli.conftest import reader
from tests.cli.test_eval import options, records
from tests.faults import Fault, FaultServer

samples = of_eval.samples


class Stopped(Exception):  # noqa: N818  # not an error
    """What a kill looks like from inside."""


def identity(server):
    return f"openai:scripted@{server.url}"


def with_password(server):
    return server.url.replace("//", "//user:pass-word@")


def words(text):
    return " ".join(text.split())


def evaluated(samples, run, server):
    return ["eval", str(samples), "-o", str(run), "--concurrency", "2", *options(server)]


def killed_after(calls, samples, run):
    """Kills an evaluation when its server has answered so often and a reading waits. Returns the server."""
    with FaultServer(reader, faults=lambda number: Fault("stall") if number >= calls else None) as server:
        command = [sys.executable, "-m", "memagent", *evaluated(samples, run, server)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=os.environ)
        try:
            end = time.monotonic() + 60
            while len(server.requests) <= calls:
                assert process.poll() is None, "the command has ended"
                assert time.monotonic() < end
                time.sleep(0.005)
        finally:
            process.kill()
            process.wait()
    return server


def answers(run):
    """Everything of the records but time and model."""
    return {key: {**values, "identity": ""} for key, values in of_eval.answers(run).items()}


def test_killed_it_goes_on_at_other_addresses_with_every_turn_that_was_made(memagent, samples, tmp_path):
    run = tmp_path / "run"
    with FaultServer(reader) as server:
        memagent(*evaluated(samples, tmp_path / "whole", server))
        calls = len(server.requests)
    first = killed_after(calls * 3 // 5, samples, run)
    header, done = json.loads((run / "run.json").read_text()), records(run)
    assert 0 < len(done) < 5
    second = killed_after(5, samples, run)
    with FaultServer(reader) as third:
        last = memagent(*evaluated(samples, run, third), "--base-url", with_password(third))
        assert last.code == 0, last.err
        asked = [len(one.requests) for one in (first, second, third)]
    assert calls <= sum(asked) <= calls + 2 * 2  # those that were being answered at a kill
    assert answers(run) == answers(tmp_path / "whole")
    found = records(run)
    assert {key: found[key] for key in done} == done
    made_by = [found[f"s{number}"].get("identity", identity(first)) for number in range(5)]
    assert len(done) <= made_by.count(identity(first)) < 5  # an answer may have waited for its record
    assert made_by.count(identity(third)) >= 1
    told = f"the model is asked at {identity(third)}; the run in {run} was begun at {identity(first)}"
    assert told in words(last.err)
    assert f"{made_by.count(identity(first))} at {identity(first)}" in last.out
    now = json.loads((run / "run.json").read_text())
    assert (now["model"], now["settings"]) == (header["model"], header["settings"])
    written = "".join(path.read_text(errors="replace") for path in run.iterdir())
    assert "pass-word" not in last.err + last.out + written
    report = memagent("report", run)
    [row] = [line for line in report.out.splitlines() if line.startswith("| memory | run |")]
    for one in set(made_by):
        assert one in row
    page = tmp_path / "report.html"
    assert memagent("report", run, "-o", page).code == 0
    assert identity(third) in page.read_text()


def test_an_unfinished_reading_is_in_the_journal_with_its_new_address(memagent, samples, tmp_path):
    """So that it goes on from there once more."""
    run, broken = tmp_path / "run", Fault("status", status=401)
    servers, turns = [], []
    for limit in (3, 4):
        with FaultServer(reader, faults=lambda number, limit=limit: broken if number >= limit else None) as server:
            stopped = memagent(*evaluated(samples, run, server), "--concurrency", 1)
            assert (stopped.code, "401" in stopped.err) == (4, True)
        with Journal.open(run / "journal.sqlite3") as journal:
            [known] = [record for record in journal.list() if record.turns]
        assert known.settings["identity"] == identity(server)
        assert "paths" not in known.document
        servers.append(server)
        turns.append(known.turns)
    assert turns == [3, 7]
    with FaultServer(reader) as elsewhere:
        done = memagent(*evaluated(samples, run, elsewhere), "--json")
    assert (done.code, done.json["models"]) == (0, {identity(elsewhere): 5})
    assert done.json["cells"][0]["strict"] == 1.0


def test_an_answer_that_was_given_before_the_move_keeps_its_model(memagent, samples, tmp_path, monkeypatch):
    def lost(folder, record, reading):
        raise Stopped  # after the last turn, and before the record

    run = tmp_path / "run"
    with FaultServer(reader) as server, FaultServer(reader) as elsewhere:
        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "write", lost)
            for one in (server, elsewhere):
                with pytest.raises(Stopped):
                    memagent(*evaluated(samples, run, one), "--concurrency", 1)
        assert elsewhere.requests == []
        assert memagent(*evaluated(samples, run, elsewhere)).code == 0
    made_by = sorted(values.get("identity", "") for values in records(run).values())
    assert made_by == ["", *[identity(elsewhere)] * 4]


def test_what_failed_is_read_again_elsewhere(memagent, samples, tmp_path):
    run, broken = tmp_path / "run", Fault("status", status=400)
    with FaultServer(reader, faults=lambda number: broken if number == 2 else None) as server:
        first = memagent(*evaluated(samples, run, server), "--concurrency", 1, "--json")
        assert first.json["failures"] == {"refused": 1}
        asked = len(server.requests)
    with FaultServer(reader) as elsewhere:
        kept = memagent(*evaluated(samples, run, elsewhere), "--json")
        assert (kept.json, elsewhere.requests, "was begun at" in kept.err) == (first.json, [], False)
        again = memagent(*evaluated(samples, run, elsewhere), "--json", "--retry-failed")
        assert again.json["models"] == {identity(server): 4, identity(elsewhere): 1}
        assert len(elsewhere.requests) < asked / 3


def test_a_server_that_counts_tokens_otherwise_does_not_go_on_with_a_reading(memagent, samples, tmp_path):
    def counted(body):  # by vLLM, with two tokens a word
        return {"count": 2 * len(body.get("prompt", "").split()), "tokens": [], "max_model_len": 4000}

    def command(server):
        return [*evaluated(samples, tmp_path / "run", server), "--question-tokens", 100, "--answer-tokens", 100]

    counts, refused = {"/tokenize": counted}, Fault("status", status=401)
    with FaultServer(reader, routes=counts, faults=lambda number: refused if number > 3 else None) as server:
        assert memagent(*command(server), "--concurrency", 1).code == 4
    with FaultServer(reader) as elsewhere:
        other = memagent(*command(elsewhere))
        assert (other.code, elsewhere.requests) == (2, [])
        assert "resume it with the server that counted its tokens and the memagent that began it" in words(other.err)
    with FaultServer(reader, routes=counts) as elsewhere:
        assert memagent(*command(elsewhere)).code == 0
        turns = [len(values["turns"]) for values in records(tmp_path / "run").values()]
        assert len(elsewhere.requests) == sum(turns) - 4


@pytest.mark.parametrize(
    ("change", "named", "unnamed"),
    [
        (["--model", "other"], ['settings.model: "scripted" → "other"'], []),
        (["--answer-tokens", "99"], ["settings.budgets.answer: ", " → 99"], ["base_url", "identity", "model:"]),
        (["--window", "4000"], ["settings.window: null → 4000"], ["base_url", "identity", "model:"]),
    ],
)
def test_another_model_or_setting_is_refused_at_another_address(memagent, samples, tmp_path, change, named, unnamed):
    run = tmp_path / "run"
    with FaultServer(reader) as server:
        memagent(*evaluated(samples, run, server))
        before = [path.read_bytes() for path in sorted(run.iterdir())]
    with FaultServer(reader, models=["scripted", "other"]) as elsewhere:
        refused = memagent(*evaluated(samples, run, elsewhere), "--base-url", with_password(elsewhere), *change)
        assert (refused.code, elsewhere.requests) == (2, [])
    said = words(refused.err)
    for one in (*named, f"the run in {run} has other settings", "or another folder"):
        assert one in said
    for one in (*unnamed, "pass-word"):
        assert one not in said
    assert [path.read_bytes() for path in sorted(run.iterdir())] == before


def test_weights_do_not_take_the_place_of_a_server(memagent, samples, server, tmp_path):
    assert memagent(*evaluated(samples, tmp_path / "run", server)).code == 0
    refused = memagent("eval", samples, "-o", tmp_path / "run", "--chunk-tokens", "100", "--memory-tokens", "50")
    assert refused.code == 2
    assert "settings.base_url" in refused.err
    assert "settings.identity" in refused.err


def test_a_comparison_goes_on_and_says_that_readings_are_from_two_addresses(memagent, samples, tmp_path):
    command = ["compare", samples, "-r", "memory", "-o", tmp_path / "kept"]
    with FaultServer(reader) as server:
        assert memagent(*command, *options(server)).code == 0
    with FaultServer(reader) as elsewhere:
        both = memagent(*command, "-r", "gated", *options(elsewhere))
        assert (both.code, len(elsewhere.requests) > 0) == (0, True)
        assert f"readings at each address: 5 at {identity(server)}, 5 at {identity(elsewhere)}" in both.out
        moved = f"the model is asked at {identity(elsewhere)}; the comparison in {tmp_path / 'kept'} was begun at"
        assert f"{moved} {identity(server)}" in words(both.err)
        assert "; times at different addresses are not compared" in both.out
        asked = len(elsewhere.requests)
        again = memagent(*command, "-r", "gated", "--json", *options(elsewhere))
        told = again.json["readers"]
        assert (len(elsewhere.requests), again.err) == (asked, "")
    assert [one["models"] for one in told] == [{identity(server): 5}, {identity(elsewhere): 5}]


def test_a_comparison_that_repeats_what_failed_elsewhere_says_so(memagent, samples, tmp_path):
    command = ["compare", samples, "-r", "memory", "-o", tmp_path / "kept"]
    with FaultServer(reader, faults=lambda number: Fault("status", status=400) if number == 2 else None) as server:
        assert memagent(*command, "--concurrency", 1, *options(server)).code == 0
    with FaultServer(reader) as elsewhere:
        again = memagent(*command, *options(elsewhere))
        assert elsewhere.requests
    assert f"was begun at {identity(server)}" in words(again.err)
