"""Readings that come and go, each on its own, over an engine in process that is fast only with many turns at once.

Turns that are there at the same time are generated together, whatever document they belong to. A reading that ends makes
room for the next at once; no reading waits for the longest of its batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar

from memagent.core import Batch, Completion, Engine, Turn
from memagent.core.types import Tokenizer
from memagent.driver import batch_of

# Seconds to wait for the turns of the other readings, whose last ones are being written to the journal.
_PATIENCE = 0.05
# Whose turns are asked for in this context.
_READING: ContextVar[object] = ContextVar("memagent_shared_reading", default=None)


class SharedEngine:
    """An engine whose `agenerate` generates turns together. For one event loop.

    A turn joins those that are under way where the engine takes that; else it waits until they have ended, `most` of them
    in one call. A reading has its share of so many: one, if others fill the batch.
    """

    lockstep = False
    in_process = True  # many turns at once are no faster: for the reader `auto`

    def __init__(self, engine: Engine, most: int) -> None:
        self._engine = engine
        self._most = most
        self._readings = 0
        self._batch: Batch | None = None  # while there are turns in it
        self._turns: dict[Hashable, tuple[asyncio.Future[Completion], object]] = {}  # by name, with whose they are
        self._arrived = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    @property
    def identity(self) -> str:
        return self._engine.identity

    @property
    def window(self) -> int | None:
        return self._engine.window

    @property
    def overhead(self) -> int:
        return self._engine.overhead

    @property
    def tokenizer(self) -> Tokenizer:
        return self._engine.tokenizer

    @property
    def concurrency(self) -> int:
        return max(1, self._most // max(1, self._readings))

    def generate(self, turns: Sequence[Turn]) -> list[Completion | Exception]:
        return self._engine.generate(turns)

    def close(self) -> None:
        self._engine.close()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A reading is under way: its next turn is waited for, for a moment."""
        self._readings += 1
        token = _READING.set(object())
        try:
            yield
        finally:
            _READING.reset(token)
            self._readings -= 1
            self._arrived.set()

    async def agenerate(self, turn: Turn) -> Completion:
        """Answers one turn, together with others. Raises its ModelError."""
        batch = self._batch = self._batch or batch_of(self._engine, self._most)
        result: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._turns[result] = result, _READING.get()
        batch.add(result, turn)
        self._arrived.set()
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._generate_all(batch))
        try:
            return await result
        except asyncio.CancelledError:
            if self._turns.pop(result, None) is not None:
                batch.discard(result)
            raise

    async def _generate_all(self, batch: Batch) -> None:
        """Generates turns until there are none; the last one ends the batch."""
        while self._turns:
            if batch.idle:
                await self._fill()
            for key, made in await asyncio.to_thread(batch.step):
                result, _ = self._turns.pop(key, (None, None))
                if result is None or result.done():  # its reading was given up
                    continue
                if isinstance(made, Exception):
                    result.set_exception(made)
                else:
                    result.set_result(made)
        self._batch = None

    async def _fill(self) -> None:
        """Waits until every reading has a turn here, or for a moment."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while len(self._turns) < self._most and len({whose for _, whose in self._turns.values()}) < self._readings:
                    self._arrived.clear()
                    await self._arrived.wait()


def under_way(engine: Engine) -> AbstractContextManager[None]:
    """A reading with this engine is under way, for engines that readings share."""
    return engine.reading() if isinstance(engine, SharedEngine) else nullcontext()
