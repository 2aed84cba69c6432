"""What is shown while a reading is under way, on a real terminal."""

from __future__ import annotations

import re
import signal

import pytest

from tests.cli.conftest import FACT, reader
from tests.cli.terminal import Terminal, wait_for
from tests.faults import FaultServer

QUESTION = "What is the code for amber-falcon?"
# What Rich itself sends: colours, cursor movements, erasing, showing and hiding the cursor.
OUR_ESCAPES = re.compile(r"\x1b\[(\d+(;\d+)*)?m|\x1b\[\d*[AK]|\x1b\[2K|\x1b\[\?25[hl]|\r")


def options(server: FaultServer) -> list[str]:
    return ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100", "--memory-tokens", "50"]


def lines(shown: str) -> list[str]:
    """What stood on the lines of the terminal, one frame after the other."""
    return OUR_ESCAPES.sub(lambda found: "" if found[0][-1] in "mhl" else "\n", shown).splitlines()


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_progress_shows_turns_time_and_memory_at_any_width(book, columns):
    with (
        FaultServer(reader, delay=0.05) as server,
        Terminal("ask", book, "-q", QUESTION, *options(server), columns=columns) as terminal,
    ):
        assert terminal.finish() == 0
        assert terminal.out.startswith("4821973\n")
    shown = lines(terminal.shown)
    assert any(re.search(r"turn [1-9]\d* of \d\d · \d+:\d\d left", line) for line in shown), terminal.shown
    assert any("read 1" in line for line in shown)
    assert any(FACT in line for line in shown)
    progress = [line for line in shown if "turn " in line and " left" in line]
    assert all(len(line) <= columns for line in progress)
    if columns >= 80:
        assert any(re.search(r"\d of [\d,]+ tokens", line) for line in progress)
    if columns >= 120:
        assert any(re.search(r"━.* tokens/s", line) for line in progress)


def test_nothing_of_it_where_standard_error_is_no_terminal(memagent, book, served):
    result = memagent("ask", book, "-q", QUESTION, *served)
    assert "turn 1" not in result.err
    assert len(result.err.splitlines()) == 1


def test_escapes_in_questions_and_memories_never_reach_the_terminal(book):
    bad = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil [red]x[/nope] :key:"
    with (
        FaultServer(lambda _: bad, delay=0.02) as server,
        Terminal("ask", book, "-q", bad + "1", "-q", bad + "2", *options(server), both=True) as terminal,
    ):
        assert terminal.finish() == 0
    rest = OUR_ESCAPES.sub("", terminal.shown)
    assert [char for char in rest if char in "\x1b\x07\x9b\u202e"] == []
    assert "[red]x[/nope] :key:" in rest
    assert "memory · " in rest


def test_a_log_of_turns_shows_brackets_as_they_are(book):
    with (
        FaultServer(lambda _: "[red] it's [/nope] \x1b[2J") as server,
        Terminal("ask", book, "-q", "x", "--verbose", *options(server)) as terminal,
    ):
        assert terminal.finish() == 0
    assert """memory: "[red] it's [/nope] \\x1b[2J\"""" in "".join(lines(terminal.shown))


def test_ctrl_c_leaves_a_clean_terminal_and_says_how_to_resume(book):
    with (
        FaultServer(reader, delay=0.05) as server,
        Terminal("ask", book, "-q", QUESTION, *options(server), columns=40) as terminal,
    ):
        wait_for(lambda: re.search(r"turn ([3-9]|\d\d+) of", terminal.shown))  # a busy machine does not show every turn
        terminal.signal(signal.SIGINT)
        assert terminal.finish() == 130
    assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l")  # the cursor is back
    assert re.search(r"resume with: memagent resume r-\w{12}\r?\n", terminal.shown)
    assert "Traceback" not in terminal.shown


@pytest.mark.parametrize("reader", ["memory", "auto"])
def test_a_long_document_shows_how_much_of_it_is_cut_before_the_first_turn(tmp_path, reader):
    path = tmp_path / "long.txt"
    path.write_text("All the ships of the fleet came home before the winter.\n" * 40_000)
    with (
        FaultServer(lambda _: "nothing yet", delay=30) as server,
        Terminal("ask", path, "-q", QUESTION, *options(server), "--reader", reader) as terminal,
    ):
        wait_for(lambda: "turn 0 of" in terminal.shown)
        terminal.signal(signal.SIGINT)
        assert terminal.finish() == 130
    shown = "\n".join(lines(terminal.shown))
    found = [int(share) for share in re.findall(r"cutting into chunks\D*(\d+)%", shown)]
    assert found == sorted(found), "once, and not once for each reader that could be chosen"
    assert any(0 < share < 100 for share in found)
    assert shown.index("cutting into chunks") < shown.index("turn 0 of")
