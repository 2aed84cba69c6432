"""Live progress of readings, if standard error is a terminal."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from memagent.cli.console import err, note, plain
from memagent.harmful import clean
from memagent.session import Progress as Reading
from memagent.session import Session, Watcher

if TYPE_CHECKING:
    from memagent.evaluation.runner import Tally

_LONG = 1_000_000  # characters of a document, which take two seconds to cut
_MEMORY_LINES = 8
_LINE_CHARS = 200
_BAR = (10, 40)  # minimum and maximum width in columns


@contextmanager
def shown(readings: Sequence[Reading], verbose: bool) -> Iterator[Watcher]:
    """Yields a watcher that shows turn k of K, time left, tokens read, speed and the latest memory."""
    if verbose:
        with _log_requests():
            yield _log_turns
    elif not err.is_terminal:
        yield lambda _: None
    else:
        view = _View(readings)
        with Live(view, console=err, refresh_per_second=8, transient=True):
            yield view.update


@contextmanager
def counted(what: str, total: int, done: int = 0) -> Iterator[Callable[[int, str], None]]:
    """Yields a function that shows how many of `total` are done, and a text behind the bar, on a terminal."""
    if not err.is_terminal:
        yield lambda number, text: None
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Bars(*columns, console=err, transient=True) as bars:
        line = bars.add_task("", total=total, completed=done)
        yield lambda number, text: bars.update(line, completed=number, description=text)


@contextmanager
def run_shown(total: int) -> Iterator[Callable[[Tally], None]]:
    """Yields a watcher of a run of evaluation that shows finished readings, turns, and tokens a second."""
    began = time.monotonic()
    with counted("readings", total) as update:

        def watch(tally: Tally) -> None:
            speed = tally.tokens / max(1e-9, time.monotonic() - began)
            update(tally.finished, f"{tally.turns:,} turns · {speed:,.0f} tokens/s")

        yield watch


@contextmanager
def _log_requests() -> Iterator[None]:
    """Prints what engines say of requests, such as those that failed and are sent again."""
    log, handler = logging.getLogger("memagent.models"), _Notes()
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


@contextmanager
def cutting(session: Session) -> Iterator[None]:
    """Shows how much of a long document has been cut into chunks, which is done before the first turn."""
    if not err.is_terminal or len(session.document) < _LONG:
        yield
        return
    with Bars(
        "cutting into chunks", BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), console=err, transient=True
    ) as bar:
        task = bar.add_task("", total=len(session.document))
        read = 0

        def told(end: int) -> None:
            nonlocal read
            read = max(read, end)
            bar.update(task, completed=read)

        session.document.follower = told
        try:
            yield
        finally:
            session.document.follower = None


class _View:
    """The progress of all readings on one line, and the latest memory."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self._readings = readings
        self._latest = readings[0]
        self._began = self._moved = time.monotonic()
        self._before = self._read
        self._total = sum(reading.plan.tokens for reading in readings)

    @property
    def _read(self) -> int:
        return sum(reading.tokens_read for reading in self._readings)

    def update(self, moved: Sequence[Reading]) -> None:
        self._latest = moved[-1]
        self._moved = time.monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line, width = self._line(options.max_width), options.max_width
        table = Table.grid(padding=(0, 1, 0, 0))
        least, most = _BAR
        if (room := width - len(line) - 2) >= least:
            table.add_row(ProgressBar(max(1, self._total), self._read, width=min(most, room)), Text(line))
        else:
            table.add_row(Text(line))
        yield table
        title = f"memory · {self._latest.plan.question}" if len(self._readings) > 1 else "memory"
        yield Text(clean(" ".join(title.split())), style="dim", no_wrap=True, overflow="ellipsis")
        memory = clean(self._latest.state.memory).splitlines() or ["(empty)"]
        lines = [line if len(line) < _LINE_CHARS else line[: _LINE_CHARS - 1] + "…" for line in memory[-_MEMORY_LINES:]]
        yield Padding(Text("\n".join(lines)), (0, 0, 0, 2))

    def _line(self, width: int) -> str:
        """The parts that fit, the most important first."""
        done = sum(reading.ledger.turns for reading in self._readings)
        planned = done + sum(reading.turns_left for reading in self._readings)
        read, took = self._read - self._before, self._moved - self._began
        speed = read / took if took else 0.0
        line = f"turn {done:,} of {planned:,}"
        for part in (self._left(speed), f"{self._read:,} of {self._total:,} tokens", f"{speed:,.0f} tokens/s"):
            if len(line) + 3 + len(part) > width:
                break
            line += f" · {part}"
        return line

    def _left(self, speed: float) -> str:
        if not speed:
            return "-:-- left"
        waited = time.monotonic() - self._moved
        seconds = round(max(0.0, (self._total - self._read) / speed - waited))
        hours, minutes = seconds // 3600, seconds // 60 % 60
        return f"{hours}:{minutes:02}:{seconds % 60:02} left" if hours else f"{minutes}:{seconds % 60:02} left"


def _log_turns(moved: Sequence[Reading]) -> None:
    for reading in moved:
        state, turns = reading.state, reading.ledger.turns
        label = f"{reading.id} " if reading.id else ""
        err.print(
            f"{label}turn {turns} of {turns + reading.turns_left}: {state.outcome}; memory: {plain(repr(state.memory))}",
            soft_wrap=True,
        )
