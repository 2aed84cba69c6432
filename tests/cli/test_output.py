"""What is printed is what was said: on any encoding, for any file name, with any characters."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memagent.cli.console import exit_code
from memagent.errors import OutputError
from memagent.files import writing
from tests.faults import Fault, FaultServer

ODD = "a :key: b\u00a0c\u3000d \u0645\u06cc\u200c\u062e e\tf [red]g[/nope] \\[h] \u4f60"


def options(server: FaultServer) -> list[str]:
    return ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100", "--memory-tokens", "100"]


@pytest.fixture
def note(tmp_path):
    path = tmp_path / "note.txt"
    path.write_text("words")
    return path


def spawned(*arguments: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "memagent", *(os.fsencode(str(argument)) for argument in arguments)]
    return subprocess.run(
        command, capture_output=True, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, timeout=60
    )


def test_answers_and_memories_are_printed_as_they_are(memagent, note):
    with FaultServer(lambda _: ODD) as server:
        result = memagent("ask", note, "-q", "x", *options(server))
        reading = memagent("readings", "list", "--json").json[0]["reading"]
    assert result.out.splitlines()[0] == ODD
    assert f"    {ODD}  turn 1" in result.out
    shown = memagent("readings", "show", reading).out
    assert ODD in shown.splitlines()
    assert f"  + {ODD}" in shown


def test_turns_that_a_gate_skipped_are_one_line(memagent, tmp_path):
    (book := tmp_path / "book.txt").write_text("Nothing happened here. " * 120)
    with FaultServer(lambda _: "nothing new") as server:
        made = memagent("ask", book, "-q", "x", "--reader", "gated", "--json", *options(server)).json
    assert made["outcomes"]["skipped"] == made["turns"] - 1 > 3
    shown = memagent("readings", "show", made["reading"]).out
    assert f"turns 1–{made['turns'] - 1} · memory unchanged" in shown
    assert "skipped" not in shown


def test_what_drives_a_terminal_is_not(memagent, note):
    with FaultServer(lambda _: "a\x1b[2J\x07\x9b1m\u202eb\u2066c") as server:
        result = memagent("ask", note, "-q", "x", *options(server))
    assert result.out.splitlines()[0] == "a\ufffd[2J\ufffd\ufffd1m\ufffdb\ufffdc"


def test_replies_that_were_no_memory_are_counted(memagent, note):
    replies = iter(["", "", "The answer is a guess."])
    with FaultServer(lambda _: next(replies)) as server:
        result = memagent("ask", note, "-q", "x", *options(server))
    assert "  memory: empty" in result.out
    assert "  2 of 3 replies were empty" in result.out
    replies = iter(["a fact, " * 200, "another fact, " * 200, "A guess."])
    with FaultServer(lambda _: next(replies)) as server:
        result = memagent("ask", note, "-q", "x", *options(server))
    assert "  2 of 3 replies were too long, and were repeated or cut" in result.out
    with FaultServer(lambda _: "a fact") as server:
        result = memagent("ask", note, "-q", "x", *options(server))
    assert " replies " not in result.out


@pytest.mark.parametrize("as_json", [False, True])
def test_an_encoding_that_lacks_characters(note, as_json):
    with FaultServer(lambda _: "naïve 你好 😀") as server:
        done = spawned("ask", note, "-q", "ü?", *options(server), *["--json"] * as_json, PYTHONIOENCODING="ascii")
        reading = spawned("readings", "list", "--json").stdout
        exported = spawned("readings", "export", json.loads(reading)[0]["reading"], PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    if as_json:
        assert json.loads(done.stdout.decode("ascii"))["answer"] == "naïve 你好 😀"
    else:
        assert done.stdout.decode("ascii").splitlines()[0] == r"na\xefve \u4f60\u597d \U0001f600"
    assert json.loads(exported.stdout.decode("ascii").splitlines()[-1])["completion"]["text"] == "naïve 你好 😀"


@pytest.mark.parametrize("as_json", [False, True])
def test_a_file_name_that_is_not_text(tmp_path, as_json):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.txt")
    with open(path, "w") as file:  # noqa: PTH123
        file.write("The code is 4821973.")
    with FaultServer(lambda _: "The code is 4821973.") as server:
        done = spawned("ask", path, "-q", "x", *options(server), *["--json"] * as_json)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    if as_json:
        assert json.loads(done.stdout)["document"]["files"][0]["name"] == path
    else:
        assert "bad\ufffd.txt" in done.stdout.decode()
    missing = spawned("ask", path + "x", "-q", "x")
    assert (missing.returncode, b"no such file" in missing.stderr) == (3, True)


def test_a_question_that_is_not_text_is_refused(note):
    with FaultServer() as server:
        done = spawned("ask", note, "-q", "bad \udcff", *options(server))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"not valid Unicode" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_model_with_brackets_in_its_name(memagent, note):
    with FaultServer(lambda _: "m", models=["[/x]"]) as server:
        result = memagent("ask", note, "-q", "x", "-m", "[/x]", "--base-url", server.url, "--chunk-tokens", 100)
        assert result.code == 0
        assert "model [/x]" in result.err
        dry = memagent("ask", note, "-q", "x", "-m", "[/x]", "--base-url", server.url, "--chunk-tokens", 100, "--dry-run")
    assert "[/x], window" in dry.out


def test_ids_are_whole_in_a_narrow_terminal(memagent, note, monkeypatch):
    with FaultServer(lambda _: "some words of an answer " * 5) as server:
        memagent("ask", note, "-q", "what about this or that and more of it", *options(server))
    reading = memagent("readings", "list", "--json").json[0]["reading"]
    for columns in ("80", "50", "30"):
        monkeypatch.setenv("COLUMNS", columns)
        assert reading in memagent("readings", "list").out


@pytest.mark.parametrize("columns", ["0", "00", "", "x"])
def test_an_answer_is_shown_on_a_terminal_that_does_not_know_its_width(note, columns):
    with FaultServer(lambda _: "some words") as server:
        done = spawned("ask", note, "-q", "x", *options(server), COLUMNS=columns)
        lost = spawned("ask", note.with_name("none.txt"), "-q", "x", *options(server), COLUMNS=columns)
    assert done.stdout.decode().splitlines()[0] == "some words"
    assert b"none.txt" in lost.stderr


def test_a_full_disk_has_the_exit_code_of_output_that_cannot_be_written(tmp_path):
    def code(number: int) -> int:
        with pytest.raises(OutputError) as raised, writing(tmp_path / "out"):
            raise OSError(number, os.strerror(number))
        return exit_code(raised.value)

    assert [code(number) for number in (errno.ENOSPC, errno.EIO, errno.EACCES)] == [5, 5, 2]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize("words", [["--dry-run"], ["--dry-run", "--json"]])
def test_output_that_cannot_be_written_is_one_line_and_an_exit_code_of_its_own(note, words):
    with FaultServer(lambda _: "words") as server, Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "memagent", "ask", str(note), "-q", "x", *words, *options(server)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
        shut = subprocess.run(
            ["sh", "-c", 'exec "$@" >&-', "sh", *command], stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert done.returncode == 5
    assert done.stderr.decode().splitlines() == ["memagent: cannot write to standard output: No space left on device"]
    assert (shut.returncode, shut.stderr) == (0, b"")


def test_a_reader_of_the_output_that_goes_away_does_not_mean_that_there_is_no_answer(note):
    end, begin = os.pipe()
    os.close(end)
    with FaultServer(lambda _: "words") as server:
        command = [sys.executable, "-m", "memagent", "ask", str(note), "-q", "x", "--dry-run", *options(server)]
        done = subprocess.run(command, stdout=begin, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(begin)
    assert (done.returncode, done.stderr) == (5, b"")


def test_an_estimate_of_tokens_is_called_one(memagent, note):
    with FaultServer(lambda _: "words") as server:
        assert "tokens (estimated)" in memagent("ask", note, "-q", "x", *options(server)).err
        assert "tokens (estimated)" in memagent("ask", note, "-q", "x", "--dry-run", *options(server)).out


def test_requests_that_fail_are_told_with_verbose(memagent, note):
    faults = {2: Fault("status", status=500)}
    with FaultServer(lambda _: "words", faults=lambda number: faults.get(number)) as server:
        told = memagent("ask", note, "-q", "x", "--verbose", *options(server)).err
        quiet = memagent("ask", note, "-q", "x", *options(server)).err
    assert "attempt 1 failed" in told
    assert "attempt" not in quiet


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--direct", "--reader", "gated"], "--direct is --reader direct: it does not go with --reader gated"),
        (["--price-in", "1"], "for the estimate of --dry-run"),
        (["--tokenizer", "nope"], "a tokenizer is for a model at a server"),
        (["--predict"], "a prediction of the memory is for a model at a server"),
        (["--window", "4096"], "a window of 4,096 tokens is more than the 1,024 that the model has"),
        (["--reader", "nope"], "use one of memory, gated"),
        (["--reasoning-tokens", "5000"], "lower the reasoning to "),
    ],
)
def test_options_that_would_do_nothing_are_refused(memagent, note, words, said):
    result = memagent("ask", note, "-q", "x", *words)
    assert result.code == 2
    assert said in " ".join(result.err.split())
