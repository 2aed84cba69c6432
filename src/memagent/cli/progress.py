"""Live progress of readings on a terminal; nothing where standard error is not one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Group
from rich.live import Live
from rich.padding import Padding
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from memagent.cli.console import err, plain
from memagent.session import Progress as Reading
from memagent.session import Watcher

_MEMORY_LINES = 8


@contextmanager
def shown(readings: Sequence[Reading], verbose: bool) -> Iterator[Watcher]:
    """Yields a watcher that shows turn k of K, tokens read, speed, time left and the latest memory."""
    if verbose:
        yield _log_turns
    elif not err.is_terminal:
        yield lambda _: None
    else:
        view = _View(readings)
        with Live(view.render(), console=err, refresh_per_second=8, transient=True) as live:

            def watch(moved: Sequence[Reading]) -> None:
                view.update(moved)
                live.update(view.render())

            yield watch


class _View:
    """A bar over all readings, and the memory of each that moved last."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self._readings = readings
        self._latest = readings[0]
        self._began = time.monotonic()
        self._before = self._read
        columns: list[ProgressColumn] = [
            BarColumn(),
            TextColumn("{task.description}"),
            TextColumn("·"),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("left"),
        ]
        self._bar = Progress(*columns, console=err, auto_refresh=False)
        self._task = self._bar.add_task("", total=max(1, sum(reading.plan.tokens for reading in readings)))
        self.update([])

    @property
    def _read(self) -> int:
        return sum(reading.tokens_read for reading in self._readings)

    def update(self, moved: Sequence[Reading]) -> None:
        if moved:
            self._latest = moved[-1]
        read, total = self._read, sum(reading.plan.tokens for reading in self._readings)
        done = sum(reading.ledger.turns for reading in self._readings)
        planned = done + sum(reading.turns_left for reading in self._readings)
        speed = (read - self._before) / max(1e-9, time.monotonic() - self._began)
        text = f"turn {done:,} of {planned:,} · {read:,} of {total:,} tokens · {speed:,.0f} tokens/s"
        self._bar.update(self._task, completed=read, description=text)

    def render(self) -> Group:
        memory = self._latest.state.memory.splitlines() or ["(empty)"]
        lines = [line if len(line) < 200 else line[:199] + "…" for line in memory[-_MEMORY_LINES:]]
        title = f"memory · {self._latest.plan.question}" if len(self._readings) > 1 else "memory"
        return Group(self._bar, Text(plain(title), style="dim"), Padding(Text("\n".join(lines)), (0, 0, 0, 2)))


def _log_turns(moved: Sequence[Reading]) -> None:
    for reading in moved:
        state, turns = reading.state, reading.ledger.turns
        label = f"{reading.id} " if reading.id else ""
        err.print(
            f"{label}turn {turns} of {turns + reading.turns_left}: {state.outcome}; memory: {plain(state.memory)!r}",
            soft_wrap=True,
        )
