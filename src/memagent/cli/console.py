"""Consoles, exit codes and the error boundary, for all commands."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.segment import Segment

from memagent.cli import interrupts
from memagent.cli.streams import OutputLost
from memagent.errors import DocumentError, JournalError, MemagentError, MissingExtraError, ModelError, OutputError
from memagent.harmful import clean

NOT_FOUND, USAGE, DOCUMENT, MODEL, UNWRITTEN, INTERRUPTED = 1, 2, 3, 4, 5, interrupts.EXIT_CODE

if not os.environ.get("COLUMNS", "1").strip("0"):  # a terminal that does not know its width; nothing would be shown
    del os.environ["COLUMNS"]
# Answers go to standard output, everything else to standard error.
out = Console(highlight=False, soft_wrap=True, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)


def run_app(app: Callable[[], None]) -> None:
    """Runs a command line. What it prints outside of `boundary`, such as help, may be lost as well."""
    try:
        app()
    except OutputLost as error:
        raise SystemExit(_lost(error, [])) from None


@contextmanager
def boundary() -> Iterator[list[str]]:
    """Turns errors of memagent and interrupts into a message and an exit code. They are caught only here.

    Yields a list for lines that say how to continue after an interrupt.
    """
    hints: list[str] = []
    interrupted = False
    try:
        yield hints
        sys.stdout.flush()
    except OutputLost as error:
        raise typer.Exit(_lost(error, hints)) from None
    except KeyboardInterrupt:
        interrupted = True
    except MemagentError as error:
        if not interrupts.received():
            _say([f"[bold red]memagent:[/] {plain(str(error))}"])
            raise typer.Exit(exit_code(error)) from error
    finally:
        # Libraries replace an interrupt by other errors, or suppress it.
        if interrupted or interrupts.received():
            _say(["\ninterrupted", *map(plain, hints)])
            raise typer.Exit(INTERRUPTED) from None


def _lost(error: OutputLost, hints: Sequence[str]) -> int:
    """Says why standard output was lost, and returns the exit code."""
    if str(error):
        _say([f"[bold red]memagent:[/] cannot write to standard output: {error}", *map(plain, hints)])
    sys.stdout = None  # Python must not write to it at exit
    return UNWRITTEN


def print_json(value: Any) -> None:
    """Prints one JSON value to standard output, independent of styling and terminal width."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    sys.stdout.write((text if encodable(text) else json.dumps(value, indent=2)) + "\n")


def encodable(text: str) -> bool:
    """Whether the encoding of standard output supports the text."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def write(*parts: str | tuple[str, str]) -> None:
    """Prints a line to standard output without markup or wrapping. A part is a text or (text, style)."""
    out.print(_Line(parts))


def note(text: str) -> None:
    """Prints a line of information to standard error."""
    err.print(f"[dim]{plain(text)}[/]", soft_wrap=True)


def note_moved(identity: str, begun: str, what: str) -> None:
    """Says that a model is asked elsewhere than where `what` was begun, if it is."""
    if identity != begun:
        note(f"the model is asked at {identity}; {what} was begun at {begun}")


def write_models(readings: Mapping[str, int]) -> None:
    """Prints the readings by the identity of their model, if its server moved."""
    if len(readings) > 1:
        write("readings at each address: " + ", ".join(f"{count:,} at {one}" for one, count in readings.items()))


def warn(text: str) -> None:
    """Prints a warning to standard error."""
    err.print(f"[yellow]warning:[/] {plain(text)}", soft_wrap=True)


def plain(text: str) -> str:
    """External text, escaped for use inside markup."""
    return escape(clean(text))


class _Line:
    def __init__(self, parts: tuple[str | tuple[str, str], ...]) -> None:
        self._parts = parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in self._parts:
            text, style = (part, "") if isinstance(part, str) else part
            yield Segment(clean(text), console.get_style(style) if style else None)
        yield Segment.line()


def _say(lines: list[str]) -> None:
    with interrupts.held():
        for line in lines:
            err.print(line, soft_wrap=True)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_UNWRITABLE = ("SQLITE_FULL", "SQLITE_IOERR")  # a disk without room, or one that fails


def exit_code(error: MemagentError) -> int:
    """What a command ends with that this error ended."""
    if isinstance(error, JournalError) and getattr(error.__cause__, "sqlite_errorname", "").startswith(_UNWRITABLE):
        return UNWRITTEN
    if isinstance(error, OutputError) and getattr(error.__cause__, "errno", None) in _FULL:
        return UNWRITTEN
    if isinstance(error, DocumentError):
        return DOCUMENT
    if isinstance(error, MissingExtraError):
        return DOCUMENT if error.extra == "documents" else MODEL
    return MODEL if isinstance(error, ModelError) else USAGE
