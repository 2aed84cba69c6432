"""Killed, interrupted, changed: what the journal is for. The processes here are real and really killed."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memagent import JournalError, resume
from memagent.documents import load
from memagent.journal import Journal
from tests.cli.conftest import FACT, CountingServer, reader
from tests.faults import Fault, FaultServer
from tests.servers import free_port

QUESTION = "What is the code for amber-falcon?"


def spawn(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "memagent", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def options(server: FaultServer) -> list[str]:
    return ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100", "--memory-tokens", "50"]


def only_reading():
    with Journal.open() as journal:
        [record] = journal.list()
        return record, list(journal.turns(record.id))


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_moment_it_goes_on_where_it_was(memagent, book, seed):
    with FaultServer(reader) as clean_server:
        whole = memagent("ask", book, "-q", QUESTION, "--json", "--no-journal", *options(clean_server)).json
    with FaultServer(reader, delay=0.01) as server:
        process = spawn("ask", book, "-q", QUESTION, *options(server))
        kill_after = random.Random(seed).randrange(1, whole["turns"])
        wait_for(lambda: len(server.requests) >= kill_after)
        process.kill()
        process.wait()
        record, entries = only_reading()
        assert record.status == "interrupted"
        # What was answered was durable before the next was asked: at most the request under way is lost.
        asked = [request["messages"][-1]["content"] for request in server.requests]
        assert len(entries) >= len(asked) - 1
        resumed = memagent("resume", record.id, "--json").json
        assert len(server.requests) - len(asked) == whole["turns"] - len(entries) + resumed["verification"]["calls"]
    for key in ("answer", "memory", "turns", "provenance", "quotes", "outcomes"):
        assert resumed[key] == whole[key], key
    assert resumed["usage"]["calls"] == whole["turns"]


def test_while_its_server_is_down_a_reading_is_not_gone_on_with_and_stays_as_it_was(memagent, book):
    port = free_port()
    small = {"object": "list", "data": [{"id": "scripted", "owned_by": "vllm", "max_model_len": 1024}]}
    with FaultServer(reader, delay=0.01, port=port) as server:
        server.routes["/v1/models"] = small
        process = spawn("ask", book, "-q", QUESTION, "--model", "scripted", "--base-url", server.url)
        wait_for(lambda: len(server.requests) >= 3)
        process.kill()
        process.wait()
    record, entries = only_reading()
    for command in (["resume", record.id], ["extend", record.id], ["ask", "--from", record.id, "-q", "Why?"]):
        down = memagent(*command)
        assert down.code == 4, command
        assert "no connection" in down.err
        assert "budgets" not in down.err
    assert only_reading() == (record, entries)
    with FaultServer(reader, port=port) as server:
        server.routes["/v1/models"] = small
        resumed = memagent("resume", record.id, "--json")
    assert (resumed.code, resumed.json["error"]) == (0, None)
    assert resumed.json["turns"] >= record.planned


def test_what_is_begun_while_a_server_is_down_assumes_nothing_of_it(memagent, book, tmp_path):
    url = f"http://127.0.0.1:{free_port()}/v1"
    there = ["--model", "scripted", "--base-url", url]
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text("".join(json.dumps({"document": str(book), "question": f"{QUESTION} {n}"}) + "\n" for n in range(20)))
    for command in (
        ["ask", book, "-q", QUESTION],
        ["ask", book, "-q", QUESTION, "--dry-run"],
        ["batch", jobs, "-o", tmp_path / "out"],
        ["watch", "add", "w", book, "-q", QUESTION],
    ):
        down = memagent(*command, *there)
        assert (down.code, "no connection" in down.err) == (4, True), command
    assert not (tmp_path / "out").exists()
    assert "w" not in memagent("watch", "list").out.split()
    with Journal.open() as journal:
        assert not journal.list()


def test_another_text_at_the_new_place_of_a_document_is_named(memagent, book, tmp_path):
    with FaultServer(reader, delay=0.01) as server:
        process = spawn("ask", book, "-q", QUESTION, *options(server))
        wait_for(lambda: len(server.requests) >= 2)
        process.kill()
        process.wait()
        record, _ = only_reading()
        moved = book.rename(tmp_path / "moved.txt")
        other = tmp_path / "other.txt"
        other.write_text("Something else.")
        wrong = memagent("resume", record.id, other)
        assert wrong.code != 0
        assert f"{other} is not the text that was read, which was at {book}" in wrong.err
        assert "extend" not in wrong.err
        right = memagent("resume", record.id, moved, "--json")
        again = memagent("resume", record.id, "--json")
    assert (right.code, right.json["answer"]) == (again.code, again.json["answer"]) == (0, "4821973")
    page = memagent("readings", "show", record.id, "--html", "-").out
    assert "The document is not shown" not in page
    assert only_reading()[0].document["paths"] == [str(moved)]


def selective(messages):
    """A model for readers that skip, take notes and search: it writes down the sentence and nothing else."""
    prompt = messages[-1]["content"]
    if "search words" in prompt:
        return "amber-falcon code"
    if "<section>" in prompt or "<notes>" in prompt:
        shown = prompt.partition("<section>")[2] or prompt.partition("<notes>")[2]
        return FACT if FACT in shown else "nothing new"
    return "4821973" if FACT in prompt else "not found"


@pytest.mark.parametrize("how", ["gated", "parallel", "search"])
def test_every_reader_goes_on_after_a_kill_and_asks_no_turn_again(memagent, book, how):
    budgets = ["--chunk-tokens", "150", "--memory-tokens", "50", "--reader", how]
    with FaultServer(selective) as clean_server:
        whole = memagent("ask", book, "-q", QUESTION, "--json", "--no-journal", *options(clean_server), *budgets).json
    assert whole["answer"] == "4821973"
    with FaultServer(selective, delay=0.02) as server:
        process = spawn("ask", book, "-q", QUESTION, *options(server), *budgets)
        wait_for(lambda: len(server.requests) >= (18 if how == "parallel" else 6))
        process.kill()
        process.wait()
        time.sleep(0.3)  # what was sent before the kill arrives
        record, entries = only_reading()
        asked = len(server.requests)
        assert 0 < len(entries) < whole["turns"]
        resumed = memagent("resume", record.id, "--json").json
        assert len(server.requests) - asked == whole["turns"] - len(entries) + resumed["verification"]["calls"]
    for key in ("answer", "memory", "turns", "outcomes", "share_read"):
        assert resumed[key] == whole[key], key
    # Turns are numbered in the order in which they ended, which differs between runs of parallel turns.
    assert [one["cited_text"] for one in resumed["quotes"]] == [one["cited_text"] for one in whole["quotes"]]
    assert [source["line"] for source in resumed["provenance"]] == [FACT]
    shown = memagent("readings", "show", record.id)
    assert shown.code == 0
    assert FACT in shown.out


def test_interrupting_says_how_to_resume(book):
    with FaultServer(reader, delay=0.05) as server:
        process = spawn("ask", book, "-q", QUESTION, "-q", "another?", *options(server))
        wait_for(lambda: len(server.requests) >= 6)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert err.count("resume with: memagent resume r-") == 2
    assert "Traceback" not in err


def test_a_failed_reading_is_resumed_when_the_server_is_back(memagent, book):
    with FaultServer(reader, faults=[None] * 5 + [Fault("status", status=401)]) as server:
        failed = memagent("ask", book, "-q", QUESTION, "--json", *options(server))
        assert failed.code == 4
        assert failed.json["turns"] == 5
        done = memagent("resume", failed.json["reading"], "--json").json
    assert done["answer"] == "4821973"
    assert FACT in done["memory"]


def interrupted(memagent, book, server) -> str:
    result = memagent("ask", book, "-q", QUESTION, "--json", *options(server))
    assert result.code == 4
    return result.json["reading"]


def broken_after_five() -> FaultServer:
    return FaultServer(reader, faults=lambda number: Fault("status", status=401) if number >= 5 else None)


def test_a_changed_document_is_refused(memagent, book):
    with broken_after_five() as server:
        reading = interrupted(memagent, book, server)
        book.write_text(book.read_text() + "\nOne more line.")
        result = memagent("resume", reading)
    assert result.code == 2
    assert f"{book} has changed since it was read" in result.err
    assert f"memagent extend {reading}" in result.err


def test_a_moved_document_is_found_by_its_new_path(memagent, book, tmp_path):
    with broken_after_five() as server:
        reading = interrupted(memagent, book, server)
        asked = len(server.requests)
        moved = book.rename(tmp_path / "moved.txt")
        gone = memagent("resume", reading)
        assert gone.code == 3
        assert f"{book}: there is no such file or folder any more. If it has moved" in gone.err
        assert f"memagent resume {reading} PATH" in gone.err
        assert memagent("resume", reading, moved).code == 4
        assert len(server.requests) == asked + 1


def test_a_file_is_named_as_it_was_asked_about_from_the_same_folder_and_in_full_from_another(
    memagent, book, tmp_path, monkeypatch
):
    def files(made):
        return {source["place"].partition(",")[0] for source in made["provenance"]}

    (folder := tmp_path / "texts").mkdir()
    shutil.copy(book, folder / "log.txt")
    monkeypatch.chdir(tmp_path)
    with FaultServer(reader) as server:
        asked = memagent("ask", "texts/log.txt", "-q", QUESTION, "--json", *options(server)).json
        names = [files(asked)]
        for place in (tmp_path, folder, tmp_path / "texts", Path("/")):
            monkeypatch.chdir(place)
            again = memagent("resume", asked["reading"], "--json").json
            names.append(files(again))
    here, there = {"texts/log.txt"}, {"log.txt"}
    assert names == [here, here, there, there, {str((folder / "log.txt").relative_to("/"))}]


def test_a_file_that_is_named_like_standard_input_is_read_again(memagent, book, tmp_path, monkeypatch):
    shutil.copy(book, tmp_path / "-")
    monkeypatch.chdir(tmp_path)
    with FaultServer(reader) as server:
        asked = memagent("ask", tmp_path / "-", "-q", QUESTION, "--json", *options(server)).json
        again = memagent("resume", asked["reading"], "--json").json
    assert (again["answer"], again["reading"]) == (asked["answer"], asked["reading"])


def test_a_server_that_has_moved_goes_on_and_is_remembered(memagent, book):
    with broken_after_five() as server:
        reading = interrupted(memagent, book, server)
    record, turns = only_reading()
    with FaultServer(reader) as elsewhere:
        secret = elsewhere.url.replace("//", "//user:pass-word@")
        again = memagent("resume", reading, "--json", "--base-url", secret)
        assert (again.code, again.json["answer"]) == (0, "4821973")
        assert len(elsewhere.requests) == again.json["turns"] - len(turns) + again.json["verification"]["calls"]
        said = f"asked at openai:scripted@{elsewhere.url}; so far it was {record.settings['identity']}"
        assert said in " ".join(again.err.split())
        told = memagent("resume", reading, "--json")
        assert (told.code, told.json["identity"]) == (0, f"openai:scripted@{elsewhere.url}")
    settings = only_reading()[0].settings
    assert (settings["base_url"], settings["identity"]) == (elsewhere.url, f"openai:scripted@{elsewhere.url}")


def test_an_answer_that_is_told_again_elsewhere_keeps_its_model(memagent, book):
    with FaultServer(reader) as server:
        asked = memagent("ask", book, "-q", QUESTION, "--json", *options(server)).json
    with FaultServer(reader) as elsewhere:
        again = memagent("resume", asked["reading"], "--json", "--base-url", elsewhere.url)
        told = memagent("resume", asked["reading"], "--json")
        assert elsewhere.requests == []
        assert (again.err, told.err) == ("", "")  # nothing was asked elsewhere
        assert "asked at" not in memagent("extend", asked["reading"]).err
        assert only_reading()[0].settings["base_url"] == elsewhere.url
        assert "asked at" in memagent("ask", "--from", asked["reading"], "-q", "And the other?").err
    assert [one["identity"] for one in (asked, again.json, told.json)] == [f"openai:scripted@{server.url}"] * 3


def test_an_answer_that_is_verified_elsewhere_says_so(memagent, book):
    with FaultServer(reader) as server:
        asked = memagent("ask", book, "-q", QUESTION, "--no-verify", "--json", *options(server)).json
    with FaultServer(reader) as elsewhere:
        assert memagent("resume", asked["reading"], "--no-verify", "--base-url", elsewhere.url).err.count("asked at") == 0
        assert memagent("resume", asked["reading"], "--base-url", elsewhere.url).err.count("asked at") == 1
        assert elsewhere.requests


def test_a_document_that_is_handed_in_takes_no_place_from_the_one_that_was_read(memagent, book):
    with broken_after_five() as server:
        reading = interrupted(memagent, book, server)
    with FaultServer(reader) as elsewhere, load(book) as document:
        assert resume(reading, document, base_url=elsewhere.url).answer == "4821973"
    assert only_reading()[0].document["paths"] == [str(book)]


def test_another_model_does_not_go_on(memagent, book):
    with broken_after_five() as server:
        reading = interrupted(memagent, book, server)
    with FaultServer(reader, models=["other"]) as server, pytest.raises(JournalError, match=r"settings\.identity"):
        resume(reading, model="other", base_url=server.url)


def test_a_tokenizer_file_is_remembered(memagent, book):
    from memagent.models.open import EMBEDDED

    with broken_after_five() as server:
        asked = memagent("ask", book, "-q", QUESTION, "--json", *options(server), "--tokenizer", EMBEDDED)
        again = memagent("resume", asked.json["reading"])
        assert len(server.requests) == 7  # asked again where it stopped, and not planned otherwise
    assert (asked.code, again.code) == (4, 4)


def test_an_answered_reading_is_told_again_and_an_unknown_one_refused(memagent, book):
    with FaultServer(reader) as server:
        reading = memagent("ask", book, "-q", QUESTION, "--json", *options(server)).json["reading"]
        asked = len(server.requests)
        again = memagent("resume", reading)
        assert len(server.requests) == asked
    assert (again.code, again.out.splitlines()[0]) == (0, "4821973")
    assert memagent("resume", "r-nothing").code == 2


def test_a_reading_from_standard_input_needs_the_document_again(memagent, book):
    with broken_after_five() as server:
        result = memagent("ask", "-", "-q", QUESTION, "--json", *options(server), input=book.read_text())
        refused = memagent("resume", result.json["reading"])
        assert (refused.code, "give its path after the id" in refused.err) == (2, True)
    assert memagent("resume", result.json["reading"], book).code == 4


def test_the_printed_command_is_complete(memagent, book, tmp_path):
    with broken_after_five() as server:
        result = memagent("ask", "-", "-q", QUESTION, *options(server), input=book.read_text())
        assert re.search(r"resume with: memagent resume r-\w{12} PATH$", result.err, re.M)
        secret = server.url.replace("http://", "http://user:pass-word@")
        asked = ["ask", book, "-q", QUESTION, *options(server), "--base-url", secret]
        result = memagent(*asked)
    assert "pass --base-url again: its credentials were not saved" in result.err
    assert "pass-word" not in result.err
    with broken_after_five() as server:
        result = memagent("ask", book, "-q", QUESTION, *options(server))
        reading = re.search(r"resume with: memagent resume (r-\w{12})$", result.err, re.M)[1]
        moved = book.rename(tmp_path / "it's moved.txt")
        again = memagent("resume", reading, moved)
    assert f"""resume with: memagent resume {reading} '{tmp_path}/it'"'"'s moved.txt'""" in again.err


def test_a_tokenizer_may_move(memagent, book, tmp_path):
    from memagent.models.open import EMBEDDED

    counter, moved = tmp_path / "one" / "tokenizer.json", tmp_path / "two" / "tokenizer.json"
    counter.parent.mkdir()
    moved.parent.mkdir()
    shutil.copy(EMBEDDED / "tokenizer.json", counter)
    with CountingServer(reader, faults=[None] * 5 + [Fault("status", status=401)]) as server:
        asked = memagent("ask", book, "-q", QUESTION, "--json", *options(server), "--tokenizer", counter)
        assert asked.code == 4
        counter.rename(moved)
        lost = memagent("resume", asked.json["reading"])
        assert (lost.code, "not a usable tokenizer.json" in " ".join(lost.err.split())) == (2, True)
        done = memagent("resume", asked.json["reading"], "--tokenizer", moved, "--json").json
    assert done["answer"] == "4821973"


def test_the_variable_does_not_redirect_a_resumed_local_reading(memagent, tmp_path, monkeypatch):
    """Nor does it lose one that a server reads."""
    path = tmp_path / "short.txt"
    path.write_text(FACT)
    reading = memagent("ask", path, "-q", QUESTION, "--json").json["reading"]
    with broken_after_five() as broken:
        monkeypatch.setenv("MEMAGENT_BASE_URL", broken.url)
        assert memagent("resume", reading, "--json").json["identity"].startswith("embedded@")
        assert broken.requests == []


def test_a_full_journal_disk_stops_before_the_next_turn(memagent, book, monkeypatch):
    from memagent.errors import JournalError

    def full(self, entries):
        raise JournalError("the disk is full")

    monkeypatch.setattr(Journal, "append_many", full)
    with FaultServer(reader) as server:
        result = memagent("ask", book, "-q", QUESTION, *options(server))
        assert len(server.requests) == 1
    assert result.code == 2
    assert "the disk is full" in result.err


def test_a_list_that_is_cut_says_so_and_the_last_turns_are_shown_also_if_nothing_changed(memagent, book):
    refused = Fault("status", status=401)
    with FaultServer(lambda messages: "the same", faults=lambda number: refused if number >= 5 else None) as server:
        first, second = (interrupted(memagent, book, server) for _ in range(2))
    assert "--limit shows more" not in memagent("readings", "list", "--limit", 2).err
    cut = memagent("readings", "list", "--limit", 1)
    assert "the newest 1; --limit shows more" in cut.err
    assert (first in cut.out, second in cut.out) == (False, True)
    shown = memagent("readings", "show", first)
    assert "turns 2–5 · memory unchanged" in shown.out


def test_readings_are_listed_shown_exported_and_deleted(memagent, book, tmp_path: Path):
    with FaultServer(reader) as server:
        values = memagent("ask", book, "-q", QUESTION, "--json", *options(server)).json
    reading = values["reading"]
    [listed] = memagent("readings", "list", "--json").json
    assert (listed["reading"], listed["status"], listed["answer"]) == (reading, "answered", "4821973")
    assert reading in memagent("readings", "list").out
    shown = memagent("readings", "show", reading).out
    assert f"+ {FACT}" in shown
    assert "- read 1" in shown
    turns = memagent("readings", "show", reading, "--json").json["turns"]
    assert len(turns) == values["turns"]
    assert turns[-2]["memory"] == values["memory"]
    target, other = tmp_path / "reading.jsonl", tmp_path / "other.jsonl"
    for _ in range(2):
        assert memagent("readings", "export", reading, "-o", target).code == 0
    other.write_text('{"schema": "mine"}\n')
    kept = memagent("readings", "export", reading, "-o", other)
    assert (kept.code, "exists and is not an exported reading" in kept.err.replace("\n", " ")) == (2, True)
    assert other.read_text() == '{"schema": "mine"}\n'
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert lines[0]["schema"] == "memagent.reading"
    assert len(lines) == values["turns"] + 1
    assert memagent("readings", "export", reading).out == target.read_text()
    before = sorted(path.name for path in tmp_path.iterdir())
    for bad in ("/nonexistent/x", tmp_path, book / "x"):
        refused = memagent("readings", "export", reading, "-o", bad)
        assert (refused.code, str(bad) in refused.err.replace("\n", "")) == (2, True)
    assert memagent("readings", "export", "r-nothing", "-o", tmp_path / "nothing.jsonl").code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert memagent("readings", "delete", reading).code == 0
    assert memagent("readings", "list", "--json").json == []
    assert memagent("readings", "show", reading).code == 2
