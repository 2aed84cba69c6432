"""Continuous batching: turns of a model in process join others that are under way, and leave as they end.

In one call for many turns, all wait for the longest reply. Here the next turn takes the place of one that has ended: a
reading whose model skips a chunk goes on with the next at once. Turns that are added after the same steps are computed in
the same batches.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memagent.core.types import Completion, Turn
from memagent.models.sampler import Row, Running, begin_alike, out_of_memory

if TYPE_CHECKING:
    from memagent.models.local import LocalEngine

# How many times as long as the shortest the longest of prompts may be that are computed together: the rest is padding.
_UNLIKE = 1.25


@dataclass(slots=True)
class _Entry:
    """A turn under way, and its share of the time so far."""

    key: Hashable
    row: Row
    seconds: float


class ContinuousBatch:
    """The turns of an engine whose model takes rows, as many at once as its memory holds; the others wait in their order.

    Those that are let in at the same time and begin alike (several questions on a chunk that is shown first), or are equal,
    share their prefill. So that the turns after them do, too, no others are let in until all of them have ended.
    """

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        # To these another thread may add.
        self._added: deque[tuple[Hashable, Turn]] = deque()
        self._given_up: deque[Hashable] = deque()
        self._waiting: deque[_Entry] = deque()
        self._going: list[_Entry] = []
        self._ended: list[tuple[Hashable, Completion | Exception]] = []
        self._running = self._empty()
        self._alike: list[_Entry] = []  # those that were let in last, if they begin alike

    def add(self, key: Hashable, turn: Turn) -> None:
        """One more turn. It may be added while another thread is in `step`, and joins there."""
        self._added.append((key, turn))

    def discard(self, key: Hashable) -> None:
        """Gives up a turn, also from another thread."""
        self._given_up.append(key)

    @property
    def idle(self) -> bool:
        return not self._going

    def step(self) -> list[tuple[Hashable, Completion | Exception]]:
        while not self._ended and (self._added or self._waiting or self._going):
            with self._engine.lock:
                try:
                    self._receive()
                    self._advance()
                except Exception as error:
                    self._fail(error)
        ended, self._ended = self._ended, []
        return ended

    def _receive(self) -> None:
        """Encodes what was added, and takes away what was given up."""
        lost = {self._given_up.popleft() for _ in range(len(self._given_up))}
        while self._added:
            key, turn = self._added.popleft()
            began = time.perf_counter()
            row = self._encoded(turn)
            if isinstance(row, Row):
                self._waiting.append(_Entry(key, row, time.perf_counter() - began))
            else:
                self._ended.append((key, row))
        if lost:
            self._ended = [(key, result) for key, result in self._ended if key not in lost]
            self._waiting = deque(entry for entry in self._waiting if entry.key not in lost)
            for entry in self._going:
                if entry.key in lost:
                    entry.row.max_tokens = len(entry.row.ids)  # it is done, and makes room for others
            self._going = [entry for entry in self._going if entry.key not in lost]
            if not self._going:
                self._running = self._empty()

    def _encoded(self, turn: Turn) -> Row | Exception:
        try:
            return self._engine.row(turn)
        except Exception as error:
            return error

    def _advance(self) -> None:
        """Lets in what there is room for, and gives each row its next token; fewer rows if memory runs out."""
        try:
            self._join_and_step()
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            self._retreat()

    def _join_and_step(self) -> None:
        came = self._let_in()
        for part in [came] if came is self._alike else _of_like_length(came):
            with _timed(part):
                self._running.join([entry.row for entry in part])
        self._collect()
        if self._going:
            with _timed(self._going):
                self._running.step()
        self._collect()

    def _let_in(self) -> list[_Entry]:
        """Those of the waiting that come next, as far as the tokens of a batch allow; the first in any case."""
        if not all(entry.row.done for entry in self._alike):
            return []
        came: list[_Entry] = []
        held, widest = self._running.shape
        while self._waiting:
            widest = max(widest, self._waiting[0].row.places)
            if self._going and max(held, len(self._going) + 1) * widest > self._engine.batch_tokens:
                break
            came.append(self._waiting.popleft())
            self._going.append(came[-1])
        self._alike = came if came and begin_alike(self._engine.model.config, [entry.row for entry in came]) else []
        return came

    def _collect(self) -> None:
        """Takes away those that are done."""
        done = [entry for entry in self._going if entry.row.done]
        self._ended += [(entry.key, self._engine.completion(entry.row, entry.seconds)) for entry in done]
        self._going = [entry for entry in self._going if not entry.row.done]

    def _retreat(self) -> None:
        """Memory ran out: all begin again, half of them at once, each with what it has of its reply."""
        self._collect()
        self._running, self._alike = self._empty(), []
        going, self._going = self._going, []
        if len(going) == 1:
            self._ended.append((going[0].key, self._engine.too_much(going[0].row)))
        elif going:
            self._engine.halve([entry.row for entry in going])
            self._waiting.extendleft(reversed(going))

    def _fail(self, error: Exception) -> None:
        """Something broke: those that are under way end with it, and those that wait begin afresh."""
        self._ended += [(entry.key, error) for entry in self._going]
        self._running, self._alike, self._going = self._empty(), [], []

    def _empty(self) -> Running:
        return Running(self._engine.model, stop_ids=self._engine.stop_ids, pad_id=self._engine.pad_id)


def _of_like_length(entries: Sequence[_Entry]) -> Iterator[list[_Entry]]:
    """The entries in parts whose prompts are of similar length."""
    part: list[_Entry] = []
    for entry in sorted(entries, key=lambda entry: len(entry.row.begun)):
        if part and len(entry.row.begun) > _UNLIKE * len(part[0].row.begun):
            yield part
            part = []
        part.append(entry)
    if part:
        yield part


@contextmanager
def _timed(entries: Sequence[_Entry]) -> Iterator[None]:
    """Shares the time that this takes among entries."""
    began = time.perf_counter()
    try:
        yield
    finally:
        for entry in entries:
            entry.seconds += (time.perf_counter() - began) / len(entries)
