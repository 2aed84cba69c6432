"""Runs readings on an engine: one (`read`), one of many in flight (`aread`), or a batch in lockstep (`read_batch`); `run`
and `arun` take several readings and choose what suits the engine.

They all give identical transcripts on the same plan and engine. They add to the protocol only what is not pure: calling
the engine, telling an observer, and turning "the prompt did not fit" into a split chunk. Retries of failed requests belong
to the engine that knows its transport.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from memagent.core import Completion, Engine, Outcome, Plan, Span, State, Turn, advance, next_turn, split_chunk
from memagent.core.types import TurnKind
from memagent.errors import ContextTooLongError, ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """A finished turn: what was shown (`span`), what came back, what it came to, and the state after it."""

    number: int
    kind: TurnKind
    span: Span | None
    completion: Completion
    state: State

    @property
    def outcome(self) -> Outcome:
        return self.state.outcome

    @property
    def memory(self) -> str:
        """The memory after this turn."""
        return self.state.memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A finished reading: its turns in order (those driven here; a resumed reading leaves out the earlier ones).

    There are none if it was run with keep=False, as long readings are by those who watch them turn by turn.
    """

    records: tuple[TurnRecord, ...]
    state: State

    @property
    def answer(self) -> str:
        return self.state.answer or ""

    @property
    def memory(self) -> str:
        return self.state.memory


# Called after each step, before the next turns are requested, with (index of the reading, its record) pairs.
Observer: TypeAlias = Callable[[Sequence[tuple[int, TurnRecord]]], None]


class _Cursor:
    """One reading under way: the protocol's two functions around a current state."""

    def __init__(self, plan: Plan, state: State | None, keep: bool) -> None:
        self.plan = plan
        self.state = state or State()
        self._keep = keep
        self.records: list[TurnRecord] = []
        self.turn = next_turn(plan, self.state)

    def take(self, result: Completion | Exception) -> TurnRecord | None:
        """Feeds what the engine gave. Returns the record of a finished turn, None after a split; raises failures."""
        assert self.turn is not None
        if isinstance(result, ContextTooLongError):
            self.state, record = _split(self.plan, self.state, result), None
        elif isinstance(result, Exception):
            raise result
        else:
            self.state = advance(self.plan, self.state, result)
            turn = self.turn
            record = TurnRecord(number=turn.number, kind=turn.kind, span=turn.span, completion=result, state=self.state)
            if self._keep:
                self.records.append(record)
        self.turn = next_turn(self.plan, self.state)
        return record

    @property
    def transcript(self) -> Transcript:
        return Transcript(records=tuple(self.records), state=self.state)


def read(plan: Plan, engine: Engine, *, state: State | None = None, observer: Observer | None = None) -> Transcript:
    """Runs a reading to its end, from `state` if given. Raises the ModelError that ended it."""
    cursor = _Cursor(plan, state, keep=True)
    while cursor.turn is not None:
        [result] = engine.generate([cursor.turn])
        _tell(observer, [(0, cursor.take(result))])
    return cursor.transcript


async def aread(
    plan: Plan,
    engine: Engine,
    *,
    state: State | None = None,
    observer: Observer | None = None,
    index: int = 0,
    keep: bool = True,
) -> Transcript:
    """As `read`, without blocking: many may run at once. The observer is told this reading's `index`, in another thread."""
    cursor = _Cursor(plan, state, keep)
    while cursor.turn is not None:
        record = cursor.take(await _attempt(engine, cursor.turn))
        if observer is not None:
            await asyncio.to_thread(_tell, observer, [(index, record)])
    return cursor.transcript


def read_batch(
    plans: Sequence[Plan],
    engine: Engine,
    *,
    states: Sequence[State | None] | None = None,
    observer: Observer | None = None,
    keep: bool = True,
) -> list[Transcript | ModelError]:
    """Runs many readings in lockstep: each step generates the next turn of every unfinished one in a single call.

    A reading that fails yields its error in its place, the others go on. Raises only what is not a ModelError.
    """
    cursors = [_Cursor(plan, state, keep) for plan, state in zip(plans, states or [None] * len(plans), strict=True)]
    failures: dict[int, ModelError] = {}
    while active := [(i, cursor, cursor.turn) for i, cursor in enumerate(cursors) if cursor.turn and i not in failures]:
        results = engine.generate([turn for _, _, turn in active])
        done: list[tuple[int, TurnRecord | None]] = []
        for (index, cursor, _), result in zip(active, results, strict=True):
            try:
                done.append((index, cursor.take(result)))
            except ModelError as error:
                failures[index] = error
        _tell(observer, done)
    return [failures.get(index) or cursor.transcript for index, cursor in enumerate(cursors)]


def run(
    plans: Sequence[Plan],
    engine: Engine,
    *,
    states: Sequence[State | None] | None = None,
    observer: Observer | None = None,
    keep: bool = True,
) -> list[Transcript | ModelError]:
    """Runs several readings as suits the engine: in lockstep in process, each on its own on a server."""
    if engine.lockstep:
        return read_batch(plans, engine, states=states, observer=observer, keep=keep)
    return _block_on(arun(plans, engine, states=states, observer=observer, keep=keep))


async def arun(
    plans: Sequence[Plan],
    engine: Engine,
    *,
    states: Sequence[State | None] | None = None,
    observer: Observer | None = None,
    keep: bool = True,
) -> list[Transcript | ModelError]:
    """As `run`, without blocking the event loop. Cancelling it stops the readings after the turns under way."""
    if engine.lockstep:
        return await _in_thread(plans, engine, states, observer, keep)
    async with together() as group:
        tasks = [
            group.create_task(_result(aread(plan, engine, state=state, observer=observer, index=index, keep=keep)))
            for index, (plan, state) in enumerate(zip(plans, states or [None] * len(plans), strict=True))
        ]
    return [task.result() for task in tasks]


@asynccontextmanager
async def together() -> AsyncIterator[asyncio.TaskGroup]:
    """A group of tasks. The first that fails (a broken journal, a bug) stops the others; its error is what is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _result(reading: Coroutine[Any, Any, Transcript]) -> Transcript | ModelError:
    try:
        return await reading
    except ModelError as error:
        return error


T = TypeVar("T")


def _block_on(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, also where this thread already runs an event loop (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _in_thread(
    plans: Sequence[Plan],
    engine: Engine,
    states: Sequence[State | None] | None,
    observer: Observer | None,
    keep: bool,
) -> list[Transcript | ModelError]:
    cancelled = threading.Event()

    def tell(step: Sequence[tuple[int, TurnRecord]]) -> None:
        if observer is not None:
            observer(step)
        if cancelled.is_set():
            raise asyncio.CancelledError

    work = asyncio.ensure_future(asyncio.to_thread(read_batch, plans, engine, states=states, observer=tell, keep=keep))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        cancelled.set()
        await asyncio.wait([work])  # the turn under way ends before its engine is closed
        raise


async def _attempt(engine: Engine, turn: Turn) -> Completion | Exception:
    try:
        return await engine.agenerate(turn)
    except ContextTooLongError as error:
        return error


def _split(plan: Plan, state: State, cause: ContextTooLongError) -> State:
    try:
        return split_chunk(plan, state)
    except ContextTooLongError as error:
        raise error from cause


def _tell(observer: Observer | None, step: Sequence[tuple[int, TurnRecord | None]]) -> None:
    done = [(index, record) for index, record in step if record is not None]
    if observer is not None and done:
        observer(done)
