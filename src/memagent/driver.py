"""Runs readings on an engine: `read` and `read_batch` in lockstep, `aread` with turns in flight; `run` and `arun` take
several readings and choose what suits the engine.

A reading may have many turns pending. The drivers start as many as the engine has use for, over all readings, and take
completions in the order in which they arrive. On the same plan and engine they end in the same state; where a reader has
one turn pending at a time, their transcripts are identical. They add to the protocol only what is not pure: calling the
engine, telling an observer, and turning "the prompt did not fit" into a split. Retries of failed requests belong to the
engine that knows its transport.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self, TypeAlias

from memagent import tracing
from memagent.core import Batch, Batching, Completion, Engine, Outcome, Plan, Span, State, Turn, reading
from memagent.core.types import TurnKind
from memagent.errors import ContextTooLongError, ModelError
from memagent.threads import ExitError, block_on, in_thread, stopped, together


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """A finished turn: what was shown (`spans`), what came back, what it came to, and the state after it.

    `number` counts the finished turns of the reading from 0, in the order in which they ended. `id` is the turn's name,
    whatever the order. `splits` are the turns that did not fit the window and were split since the turn before, in order.
    `snapshot`: the state is small and is stored with the turn; otherwise the splits are, and lead to it with the
    completions.
    """

    number: int
    id: str
    kind: TurnKind
    spans: tuple[Span, ...]
    completion: Completion
    state: State
    snapshot: bool = True
    splits: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        return self.state.outcome

    @property
    def memory(self) -> str:
        """The memory after this turn."""
        return self.state.memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A finished reading: its turns as they ended (those driven here; a resumed reading leaves out the earlier ones).

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


# Called after each step, before turns that depend on it are requested, with (index of the reading, its record) pairs.
Observer: TypeAlias = Callable[[Sequence[tuple[int, TurnRecord]]], None]


class _Cursor:
    """One reading under way: the protocol's functions around a current state."""

    def __init__(self, plan: Plan, state: State | None, keep: bool) -> None:
        self.plan = plan
        self.state = state or reading.start(plan)
        self._keep = keep
        self._splits: list[str] = []  # since the last turn
        self.records: list[TurnRecord] = []
        self.failure: ModelError | None = None

    def turns(self, under_way: frozenset[str] | set[str] = frozenset()) -> Iterator[Turn]:
        """The turns that can be generated now and are not under way, made one at a time."""
        if self.failure is None:
            for id in reading.pending(self.plan, self.state):
                if id not in under_way:
                    yield reading.turn(self.plan, self.state, id)

    @property
    def going(self) -> bool:
        """Whether there is more to do."""
        return self.failure is None and not self.state.finished

    def take(self, turn: Turn, result: Completion | Exception) -> TurnRecord | None:
        """Feeds what the engine gave. Returns the record of a finished turn, None if there is none; raises failures."""
        if self.state.finished:
            return None  # another turn of the same step has ended the reading
        if isinstance(result, ContextTooLongError):
            try:
                self.state = reading.split(self.plan, self.state, turn.id)
            except ContextTooLongError as error:
                raise error from result
            self._splits.append(turn.id)
            return None
        if isinstance(result, Exception):
            raise result
        number = self.state.turns
        self.state = reading.advance(self.plan, self.state, turn.id, result)
        splits, self._splits = tuple(self._splits), []
        record = TurnRecord(
            number=number,
            id=turn.id,
            kind=turn.kind,
            spans=turn.spans,
            completion=result,
            state=self.state,
            snapshot=self.state.settled,
            splits=splits,
        )
        if self._keep:
            self.records.append(record)
        return record

    @property
    def transcript(self) -> Transcript:
        return Transcript(records=tuple(self.records), state=self.state)


def read(plan: Plan, engine: Engine, *, state: State | None = None, observer: Observer | None = None) -> Transcript:
    """Runs a reading to its end, from `state` if given. Raises the ModelError that ended it."""
    [result] = read_batch([plan], engine, states=[state], observer=observer)
    if isinstance(result, ModelError):
        raise result
    return result


def read_batch(
    plans: Sequence[Plan],
    engine: Engine,
    *,
    states: Sequence[State | None] | None = None,
    observer: Observer | None = None,
    keep: bool = True,
) -> list[Transcript | ModelError]:
    """Runs many readings together: in lockstep, where each step generates turns of every unfinished one in a single call;
    or each as fast as its own turns end, on an engine that takes turns while it works on others.

    A reading has one turn under way, or a share of the engine's concurrency if there are fewer readings than that. One that
    fails yields its error in its place, the others go on. Raises only what is not a ModelError.
    """
    cursors = [_Cursor(plan, state, keep) for plan, state in zip(plans, states or [None] * len(plans), strict=True)]
    with _Together(engine) as batch:
        going = [index for index, cursor in enumerate(cursors) if cursor.going]
        while going:
            share = max(1, engine.concurrency // len(going))
            for index in going:
                here = batch.under_way(index)
                for turn in islice(cursors[index].turns(here), max(0, share - len(here))):
                    batch.add(index, turn)
            if not (ended := batch.step()):
                break
            done: list[tuple[int, TurnRecord | None]] = []
            for index, turn, result in ended:
                try:
                    done.append((index, cursors[index].take(turn, result)))
                except ModelError as error:
                    cursors[index].failure = cursors[index].failure or error
            for index in going:
                if not cursors[index].going:
                    batch.give_up(index)
            going = [index for index in going if cursors[index].going]
            _tell(observer, done)
    return [cursor.failure or cursor.transcript for cursor in cursors]


class _Together:
    """Turns of readings that an engine in process works on together, each with the trace of its call."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._batch = batch_of(engine)
        self._traces: dict[Hashable, tuple[int, Turn, ExitStack, tracing.Told]] = {}
        self._ids = defaultdict[int, set[str]](set)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: Any) -> None:
        for _, _, trace, _ in self._traces.values():
            trace.__exit__(*failure)

    def under_way(self, index: int) -> set[str]:
        """The ids of the turns of a reading that are being worked on."""
        return self._ids[index]

    def add(self, index: int, turn: Turn) -> None:
        trace = ExitStack()
        told = trace.enter_context(tracing.calls(self._engine, [(index, turn)]))
        self._traces[index, turn.id] = index, turn, trace, told
        self._ids[index].add(turn.id)
        self._batch.add((index, turn.id), turn)

    def step(self) -> list[tuple[int, Turn, Completion | Exception]]:
        """The turns that have ended since, with the numbers of their readings; none if there are no others."""
        ended = []
        for key, result in self._batch.step():
            index, turn, trace, told = self._traces.pop(key)
            with trace:
                told([result])
            self._ids[index].remove(turn.id)
            ended.append((index, turn, result))
        return ended

    def give_up(self, index: int) -> None:
        """A reading has ended: nothing of it is worked on any more."""
        for id in self._ids.pop(index, ()):
            self._batch.discard((index, id))
            given_up = asyncio.CancelledError()
            _, _, trace, _ = self._traces.pop((index, id))
            trace.__exit__(type(given_up), given_up, None)


class _Lockstep:
    """A batch for engines that have none of their own: up to `most` turns in one call; the others wait for it to end."""

    idle = True

    def __init__(self, engine: Engine, most: int | None) -> None:
        self._engine, self._most = engine, most
        self._turns: dict[Hashable, Turn] = {}

    def add(self, key: Hashable, turn: Turn) -> None:
        self._turns[key] = turn

    def discard(self, key: Hashable) -> None:
        self._turns.pop(key, None)

    def step(self) -> list[tuple[Hashable, Completion | Exception]]:
        next_ones = [(key, self._turns.pop(key, None)) for key in list(self._turns)[: self._most]]
        turns = {key: turn for key, turn in next_ones if turn is not None}  # without those that are given up meanwhile
        if not turns:
            return []
        try:
            made = self._engine.generate(list(turns.values()))
        except Exception as error:
            made = [error] * len(turns)
        return list(zip(turns, made, strict=True))


def batch_of(engine: Engine, most: int | None = None) -> Batch:
    """An empty batch of an engine in process: its own, or one that calls it with up to `most` turns at a time."""
    return (engine.batch() if isinstance(engine, Batching) else None) or _Lockstep(engine, most)


async def aread(
    plan: Plan,
    engine: Engine,
    *,
    state: State | None = None,
    observer: Observer | None = None,
    index: int = 0,
    keep: bool = True,
) -> Transcript:
    """As `read`, without blocking, with up to the engine's concurrency of turns in flight.

    The observer is told this reading's `index`, in another thread. A turn that fails ends the reading, once those that
    ended with it are recorded; the others in flight are given up.
    """
    cursor = _Cursor(plan, state, keep)
    flying: dict[asyncio.Task[Completion | ModelError], Turn] = {}
    try:
        while not cursor.state.finished:
            room = max(0, max(1, engine.concurrency) - len(flying))  # which may have become fewer meanwhile
            for turn in list(islice(cursor.turns({turn.id for turn in flying.values()}), room)):
                flying[asyncio.create_task(_attempt(engine, turn, index))] = turn
            if not flying:
                break
            ended, _ = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
            done: list[tuple[int, TurnRecord | None]] = []
            for task in [task for task in flying if task in ended]:
                turn = flying.pop(task)
                try:
                    done.append((index, cursor.take(turn, task.result())))
                except ModelError as error:
                    cursor.failure = cursor.failure or error
            if observer is not None and done:
                await in_thread(_tell, observer, done)
            if cursor.failure is not None:
                raise cursor.failure
    finally:
        for task in flying:
            task.cancel()
        await asyncio.gather(*flying, return_exceptions=True)
    return cursor.transcript


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
    return block_on(arun(plans, engine, states=states, observer=observer, keep=keep))


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
        return await _batch_in_thread(plans, engine, states, observer, keep)
    async with together() as group:
        tasks = [
            group.create_task(_result(aread(plan, engine, state=state, observer=observer, index=index, keep=keep)))
            for index, (plan, state) in enumerate(zip(plans, states or [None] * len(plans), strict=True))
        ]
    return [task.result() for task in tasks]


def ask(turns: Sequence[tuple[int, Turn]], engine: Engine) -> list[Completion | ModelError]:
    """The completions of turns that follow a reading, in order; a turn that failed has its error in its place. Each comes
    with the number of its reading."""
    if engine.lockstep:
        return _results(_generate(turns, engine)) if turns else []
    return block_on(aask(turns, engine))


async def aask(turns: Sequence[tuple[int, Turn]], engine: Engine) -> list[Completion | ModelError]:
    """As `ask`, without blocking the event loop. The engine has all turns at once, and limits how many it works on."""
    if engine.lockstep:
        return await in_thread(ask, turns, engine)
    async with together() as group:
        tasks = [group.create_task(_attempt(engine, turn, index)) for index, turn in turns]
    return [task.result() for task in tasks]


def _results(results: Sequence[Completion | Exception]) -> list[Completion | ModelError]:
    """Completions and failures; an error that is none of the model's is raised."""
    made: list[Completion | ModelError] = []
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, ModelError):
            raise result
        made.append(result)
    return made


async def _result(work: Coroutine[Any, Any, Transcript]) -> Transcript | ModelError:
    try:
        return await work
    except ModelError as error:
        return error
    except (KeyboardInterrupt, SystemExit) as error:
        raise ExitError(error) from None


async def _batch_in_thread(
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

    work = in_thread(read_batch, plans, engine, states=states, observer=tell, keep=keep)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        cancelled.set()
        await stopped(work)  # the turn under way ends before its engine is closed
        raise


def _generate(turns: Sequence[tuple[int, Turn]], engine: Engine) -> list[Completion | Exception]:
    """What an engine in process gives for turns of readings, in one call."""
    with tracing.calls(engine, turns) as told:
        results = engine.generate([turn for _, turn in turns])
        told(results)
    return results


async def _attempt(engine: Engine, turn: Turn, index: int) -> Completion | ModelError:
    """The completion, or the failure: a ModelError belongs to its reading, anything else is a bug and is raised."""
    with tracing.calls(engine, [(index, turn)]) as told:
        result: Completion | ModelError
        try:
            result = await engine.agenerate(turn)
        except ModelError as error:
            result = error
        told([result])
    return result


def _tell(observer: Observer | None, step: Sequence[tuple[int, TurnRecord | None]]) -> None:
    done = [(index, record) for index, record in step if record is not None]
    if observer is not None and done:
        observer(done)
