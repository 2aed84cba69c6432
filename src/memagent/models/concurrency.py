"""How many requests a server is sent at a time: a given number, or as many as still make it faster."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

from memagent.errors import ConfigError

AtOnce: TypeAlias = int | Literal["auto"]

MOST = 64  # requests at a time that "auto" may come to
_FIRST = 4  # that it begins with
_WORTH = 1.1  # how many times the tokens a second twice as many requests must give, or there are fewer again


def most_of(concurrency: AtOnce) -> int:
    """The most requests at a time that a setting comes to. Raises ConfigError for one that is none."""
    if concurrency == "auto":
        return MOST
    if not isinstance(concurrency, int) or concurrency < 1:
        raise ConfigError(f"concurrency is {concurrency!r}: it must be a number of at least 1, or 'auto'")
    return concurrency


class Gate:
    """Lets requests through. With "auto" it begins with a few at a time, and doubles them as long as that gives more tokens
    a second; then it stays. A server that says it has too many halves them. Only replies that came while requests waited,
    or all there was room for were under way, count: a reading with one turn at a time says nothing about the server.

    All methods belong to one event loop, `limit` may be read anywhere. `clock` gives seconds. A process that was forked has
    an event loop and requests of its own: there, all places are free.
    """

    def __init__(self, concurrency: AtOnce, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most_of(concurrency)
        self._climbs = self._climbing = concurrency == "auto"
        self.limit = _FIRST if self._climbing else self._most
        self._clock = clock
        self._before = 0.0  # tokens a second of the number before
        self._begin()

    @asynccontextmanager
    async def through(self) -> AsyncIterator[Callable[[int], None]]:
        """Waits for a place and holds it. What is yielded is to be told the tokens of the reply."""
        if self._process != os.getpid():
            self._begin()
        await self._room.acquire()
        try:
            yield self._replied
        finally:
            if self._owed:
                self._owed -= 1
            else:
                self._room.release()

    async def overloaded(self) -> None:
        """The server said that it has too many requests: with "auto", half as many from now on, and no more later."""
        if self._climbs and not self._owed and self.limit > 1:  # refusals that come together are one
            self._climbing = False
            self._halve()
            while self._owed and not self._room.locked():  # places that are free go at once
                await self._room.acquire()
                self._owed -= 1

    def _replied(self, tokens: int) -> None:
        if not self._climbing:
            return
        if not self._room.locked():
            self._restart()
            return
        self._replies += 1
        self._tokens += tokens
        if self._replies == 3 * self.limit:
            self._judge(self._tokens / max(1e-9, self._clock() - self._began))

    def _judge(self, rate: float) -> None:
        """Goes on to twice as many, or back and stays."""
        if rate < _WORTH * self._before:
            self._climbing = False
            self._halve()
            return
        more = min(2 * self.limit, self._most) - self.limit
        self._climbing, self._before = more > 0, rate
        self.limit += more
        for _ in range(more):
            self._room.release()
        self._restart()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._room = asyncio.Semaphore(self.limit)
        self._owed = 0  # places that are taken away once they are free
        self._restart()

    def _halve(self) -> None:
        self._owed += self.limit - self.limit // 2
        self.limit //= 2

    def _restart(self) -> None:
        self._replies, self._tokens, self._began = 0, 0, self._clock()
