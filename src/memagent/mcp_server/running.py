"""Runs readings so that nothing else waits: in threads, a few at a time, telling how far they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

import anyio

from memagent.api import without_blocking
from memagent.mcp_server.desk import Begun
from memagent.result import Reading
from memagent.session import Progress

# Told of turns that were done, turns in all, and what is going on.
Report: TypeAlias = Callable[[int, int | None, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Step:
    done: int
    left: int
    tokens: int

    def __str__(self) -> str:
        doing = f"turn {self.done} of {self.done + self.left}" if self.left else "the answer is checked"
        return f"{doing} · {self.tokens:,} tokens of the document read"


class Runner:
    """At most `most` readings are under way; others wait for their turn. Belongs to one event loop."""

    def __init__(self, most: int) -> None:
        self._room = asyncio.Semaphore(most)
        self._waiting = 0

    async def read(self, opening: AbstractContextManager[Begun], report: Report) -> Reading:
        """Opens a reading and runs it to its end.

        If this is cancelled, the reading stops after the turn under way, and can be resumed from there.
        """
        if self._room.locked():
            await report(0, None, f"waiting for another reading to end, number {self._waiting + 1} in line")
        moved = _Moved()
        # A task of its own: a cancelled request would also interrupt the orderly end of the reading.
        task = asyncio.create_task(self._in_turn(opening, moved))
        try:
            await moved.tell(task, report)
            return task.result()
        finally:
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])

    async def _in_turn(self, opening: AbstractContextManager[Begun], moved: _Moved) -> Reading:
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1
        try:
            async with without_blocking(opening) as (session, progress):
                moved.take([progress])
                [result] = await session.arun([progress], moved.take)
                return result
        finally:
            self._room.release()


class _Moved:
    """The last step of a reading, from any thread to the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._step: _Step | None = None

    def take(self, steps: Sequence[Progress]) -> None:
        one = steps[-1]
        self._step = _Step(one.ledger.turns, one.turns_left, one.tokens_read)
        self._loop.call_soon_threadsafe(self._event.set)

    async def tell(self, task: asyncio.Task[Reading], report: Report) -> None:
        """Reports steps until the task is done. Steps that come faster than they can be reported are left out."""
        told = -1
        task.add_done_callback(lambda _: self._event.set())
        while True:
            await self._event.wait()
            self._event.clear()
            if (step := self._step) is not None and step.done > told:
                told = step.done
                await report(step.done, step.done + step.left, str(step))
            if task.done():
                return
