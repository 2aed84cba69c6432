"""Ctrl-C and SIGTERM at any time: status 130, no traceback, and how to go on. Real processes, really signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from memagent.journal import Journal
from memagent.models.open import EMBEDDED
from tests.cli.conftest import reader
from tests.cli.terminal import handled, wait_for
from tests.faults import Fault, FaultServer


def spawn(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "memagent", *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )


def options(server: FaultServer) -> list[str]:
    return ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100", "--memory-tokens", "50"]


def signalled(process: subprocess.Popen[str], signals: list[signal.Signals], gap: float = 0.03) -> str:
    for number in signals:
        process.send_signal(number)
        time.sleep(gap)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    assert "Error" not in err
    return err


SIGNALS = {
    "Ctrl-C": [signal.SIGINT],
    "Ctrl-C twice": [signal.SIGINT, signal.SIGINT],
    "terminated": [signal.SIGTERM],
    "both": [signal.SIGTERM, signal.SIGINT, signal.SIGTERM],
}


@pytest.mark.parametrize("signals", SIGNALS.values(), ids=SIGNALS.keys())
def test_while_reading_from_a_server(memagent, book, signals):
    with FaultServer(reader, delay=0.02) as server:
        process = spawn("ask", book, "-q", "x", "-q", "y", "-q", "z", *options(server))
        wait_for(lambda: len(server.requests) >= 10)
        err = signalled(process, signals)
    assert err.count("resume with: memagent resume r-") == 3
    assert {one["status"] for one in memagent("readings", "list", "--json").json} == {"interrupted"}


def test_while_waiting_for_a_server_that_says_nothing(book):
    with FaultServer(reader, faults=[None, Fault("stall")]) as server:
        process = spawn("ask", book, "-q", "x", *options(server))
        wait_for(lambda: len(server.requests) >= 2)
        assert "resume with: memagent resume r-" in signalled(process, [signal.SIGINT])


def test_without_a_journal_nothing_is_promised(book):
    with FaultServer(reader, delay=0.02) as server:
        process = spawn("ask", book, "-q", "x", "-q", "y", "--no-journal", *options(server))
        wait_for(lambda: len(server.requests) >= 5)
        err = signalled(process, [signal.SIGTERM])
    assert err.split("\n")[1:] == ["interrupted", "nothing was saved (--no-journal)", ""]


def test_an_interrupted_resume_says_how_to_go_on(book):
    with FaultServer(reader, delay=0.02) as server:
        process = spawn("ask", book, "-q", "x", *options(server))
        wait_for(lambda: len(server.requests) >= 5)
        command = signalled(process, [signal.SIGINT]).split("resume with: memagent ")[1].split()
        asked = len(server.requests)
        process = spawn(*command)
        wait_for(lambda: len(server.requests) >= asked + 3)
        assert " ".join(command) in signalled(process, [signal.SIGINT])


@pytest.mark.parametrize("signals", SIGNALS.values(), ids=SIGNALS.keys())
def test_while_reading_in_this_process(tmp_path, signals):
    path = tmp_path / "long.txt"
    path.write_text("The sea is wide. " * 40_000)
    process = spawn("ask", path, "-q", "What is the code for amber-falcon?")
    home = tmp_path / "home" / "journal.sqlite3"

    def turns() -> int:
        if not home.exists():
            return 0
        with Journal.open() as journal:
            return sum(record.turns for record in journal.list())

    wait_for(lambda: turns() > 1)
    assert signalled(process, signals).count("resume with: memagent resume r-") == 1


@pytest.mark.parametrize("after", [0.0, 0.1, 0.3, 0.6, 1.0, 1.6, 2.4, 3.2])
def test_at_any_moment_before_the_first_turn(tmp_path, after):
    """Importing, loading, planning: whatever comes in between."""
    path = tmp_path / "long.txt"
    path.write_text("The sea is wide. " * 400_000)
    process = spawn("ask", path, "-q", "What is the code for amber-falcon?", "--model", EMBEDDED)
    wait_for(lambda: handled(process.pid))
    time.sleep(after)
    signalled(process, [signal.SIGINT, signal.SIGINT])


def interrupted_in_an_import(folder, library, program):
    """A program that imports `library`, in which an interrupt comes, after `interrupts.install()`."""
    (folder / "library.py").write_text(f"import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n{library}")
    begin = "import time\nfrom memagent.cli import interrupts\ninterrupts.install()\n"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", begin + program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=25)


def test_an_import_is_let_finish(tmp_path):
    """What C++ calls while a library is imported must not raise: the process would abort."""
    done = interrupted_in_an_import(
        tmp_path,
        "for _ in range(10**6): pass\nprint('imported')\n",
        "try:\n    import library\n    time.sleep(30)\nexcept KeyboardInterrupt:\n    print('interrupted')\n",
    )
    assert done.stdout.split() == ["imported", "interrupted"], done.stderr


def test_an_interrupt_strikes_once(tmp_path):
    """The import it waited for fails, and the program is on its way out: nothing may break what follows."""
    done = interrupted_in_an_import(
        tmp_path,
        "for _ in range(10**5): pass\nraise ImportError\n",
        "from memagent.cli.console import boundary\n"
        "try:\n    with boundary() as hints:\n        hints.append('go on')\n        import library\n"
        "finally:\n    assert interrupts.received()\n    time.sleep(0.2)\n    interrupts.leave()\n",
    )
    assert (done.returncode, done.stderr) == (130, "\ninterrupted\ngo on\n")


def test_a_pipe_of_questions_stopped_by_timeout(book):
    """`timeout` signals the process, then its group."""
    with FaultServer(reader, delay=0.05) as server:
        command = [sys.executable, "-m", "memagent", "ask", str(book), "-q", "x", *options(server)]
        done = subprocess.run(
            ["timeout", "--preserve-status", "-s", "INT", "3", *command], capture_output=True, text=True, timeout=60
        )
    if done.returncode != 0:  # the reading may have been quicker
        assert done.returncode == 130
        assert "Traceback" not in done.stderr
