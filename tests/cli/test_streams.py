"""What becomes of a command whose standard streams are closed, full, or read by nobody."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memagent.cli.streams import Lenient
from tests.cli.conftest import book_text, reader
from tests.faults import Fault, FaultServer

FULL = Path("/dev/full")
COMMAND = [sys.executable, "-m", "memagent"]


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    (tmp_path / "book.txt").write_text(book_text())
    options = ["--model", "scripted", "--chunk-tokens", "100", "--memory-tokens", "50"]
    return [*COMMAND, "ask", str(tmp_path / "book.txt"), "-q", "the code?", *options]


def run(command: list[str], home: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MEMAGENT_HOME": str(home / "home")}
    return subprocess.run(command, env=environment, text=True, timeout=60, check=False, **options)


def test_neither_writing_nor_flushing_messages_fails() -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    stream = Lenient(Full())
    assert stream.write("four") == 4
    stream.flush()
    assert stream.isatty() is False


@pytest.mark.skipif(not FULL.exists(), reason="a system without /dev/full")
@pytest.mark.parametrize("more", [[], ["-v"], ["--json"]])
def test_messages_that_cannot_be_written_cost_no_answer(asked: list[str], tmp_path: Path, more: list[str]) -> None:
    faults = [None, Fault("status", status=503), Fault("drop")]
    with FaultServer(reader, faults=faults) as server, FULL.open("w") as full:
        done = run([*asked, "--base-url", server.url, *more], tmp_path, stdout=subprocess.PIPE, stderr=full)
        missing = run([*COMMAND, "ask", str(tmp_path / "none"), "-q", "x"], tmp_path, stdout=subprocess.PIPE, stderr=full)
    assert (done.returncode, "4821973" in done.stdout) == (0, True)
    assert (missing.returncode, missing.stdout) == (3, "")


@pytest.mark.skipif(not FULL.exists(), reason="a system without /dev/full")
@pytest.mark.parametrize("words", ["--version", "--help", "ask --help", "readers", "profile show default", "serve-key ann"])
def test_output_that_is_lost_ends_every_command_alike(tmp_path: Path, words: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    options = ["--keys", str(tmp_path / "keys"), "--replace"] if "key" in words else []
    with FULL.open("w") as full, os.fdopen(writes, "w") as closed:
        lost = run([*COMMAND, *words.split(), *options], tmp_path, stdout=full, stderr=subprocess.PIPE)
        unread = run([*COMMAND, *words.split(), *options], tmp_path, stdout=closed, stderr=subprocess.PIPE)
    assert lost.returncode == 5
    assert lost.stderr.startswith("memagent: cannot write to standard output: No space left on device")
    assert "Traceback" not in lost.stderr
    assert (unread.returncode, unread.stderr) == (5, "")


def test_a_reader_of_messages_that_goes_away_stops_no_reading(asked: list[str], tmp_path: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        with FaultServer(reader, faults=[None, *[Fault("status", status=503)] * 3]) as server:
            command = [*asked, "--base-url", server.url, "-v"]
            done = run(command, tmp_path, stdout=subprocess.PIPE, stderr=writes)
    finally:
        os.close(writes)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "4821973")


@pytest.mark.skipif(os.name != "posix", reason="closes a descriptor in the child")
def test_a_closed_standard_input_is_no_document(tmp_path: Path) -> None:
    command = [*COMMAND, "ask", "-", "-q", "x"]
    done = run(command, tmp_path, capture_output=True, preexec_fn=lambda: os.close(0))
    assert (done.returncode, done.stdout) == (3, "")
    assert "standard input is closed" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_in_memagent_does_not_say_that_there_is_no_answer(tmp_path: Path) -> None:
    code = (
        "import sys; from memagent.cli import commands, main; sys.argv = ['memagent', 'readers'];"
        "commands.app = lambda: 1 / 0; main()"
    )
    done = run([sys.executable, "-c", code], tmp_path, capture_output=True)
    assert done.returncode == 70
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files")
def test_a_journal_without_room_has_a_code_of_its_own(asked: list[str], tmp_path: Path) -> None:
    def limited() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    with FaultServer(reader) as server:
        done = run([*asked, "--base-url", server.url], tmp_path, capture_output=True, preexec_fn=limited)
    assert (done.returncode, done.stdout) == (5, "")
    assert "journal" in done.stderr
    assert "room" in done.stderr
    assert "Traceback" not in done.stderr
