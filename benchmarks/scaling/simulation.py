"""Readings as chains of conversations on replicas with continuous batching: a discrete-event simulation, seeded.

A reading is a chain: every turn's prompt holds the memory that the turn before wrote, so it cannot start earlier. A
replica reads waiting prompts first, one after the other, and decodes when none is waiting; all its replies then grow by
one token a decoding step, whose length depends on how many there are and on their caches (`model.Engine`). Between two
events that length is taken as constant.

    lockstep       turn k + 1 starts when the last reading has finished turn k; answers after all memories (the release)
    on their own   a reading's next turn starts when its last one is finished (an agent loop on a server)
    asynchronous   the same, on GPUs of their own, while others train; bounded staleness

Times are in seconds.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, log, sqrt

from benchmarks.scaling.model import Engine, Experiment, window

ROUNDING = 1e-6  # of a token


@dataclass(frozen=True, slots=True)
class Reading:
    """Prompt and reply lengths of its turns; the last turn is the answer."""

    prompts: tuple[int, ...]
    replies: tuple[int, ...]

    @property
    def rows(self) -> list[int]:
        """Tokens of its conversations, as the trainer sees them."""
        return [prompt + reply for prompt, reply in zip(self.prompts, self.replies, strict=True)]


def draw(experiment: Experiment, prompts: int, seed: int, batch: int = 0) -> list[Reading]:
    """The readings of a rollout batch, group by group; a group shares its document, so its number of chunks."""
    readings = []
    for group in range(prompts):
        source = random.Random(f"{seed}/{batch}/{group}")
        limit = experiment.chunk * experiment.max_chunks
        document = min(max(source.gauss(experiment.document, experiment.document_spread), 1.0), limit)
        chunks = ceil(document / experiment.chunk)
        sizes = [experiment.chunk] * (chunks - 1) + [document - experiment.chunk * (chunks - 1)]
        for _ in range(int(experiment.group)):
            replies = [_length(source, experiment.memory, experiment) for _ in sizes]
            replies.append(_length(source, experiment.answer, experiment))
            frame = experiment.template + experiment.question
            texts = [
                frame + size + memory for size, memory in zip(sizes, [0, *replies], strict=False)
            ] + [experiment.answer_template + experiment.question + replies[-2]]  # fmt: skip
            readings.append(Reading(tuple(round(text) for text in texts), tuple(replies)))
    return readings


def _length(source: random.Random, mean: float, experiment: Experiment) -> int:
    variance = log(1 + experiment.spread**2)
    length = source.lognormvariate(log(mean) - variance / 2, sqrt(variance))
    return min(max(round(length), 1), int(experiment.reply_limit))


@dataclass(slots=True)
class Turn:
    """One conversation on its way: which reading, which of its turns, and lengths."""

    reading: int
    number: int
    prompt: int
    reply: int


class Replica:
    """One engine. `now` is how far it has been played; every change of state passes through `advance`."""

    def __init__(self, engine: Engine, room: float, max_running: float, reserve: int) -> None:
        self.engine, self.room, self.max_running, self.reserve = engine, room, max_running, reserve
        self.now = self.until = 0.0
        self.waiting: deque[Turn] = deque()
        self.prefilling: list[Turn] = []
        self.running: list[tuple[float, int, Turn]] = []
        self.grown = self.context = self.step = 0.0
        self.held = self.order = self.stamp = self.load = 0
        self.prefill = self.decode = self.idle = self.seats = 0.0
        self.read = self.written = 0

    @property
    def busy(self) -> bool:
        """Reading prompts or taking new weights: no reply grows."""
        return self.until > self.now or bool(self.prefilling)

    @property
    def next_event(self) -> float:
        """When its state changes by itself."""
        if self.busy:
            return self.until
        return self.now + (self.running[0][0] - self.grown) * self.step if self.running else inf

    def advance(self, time: float) -> None:
        """Play to `time`, which is not after the next event."""
        busy, passed, self.now = self.busy, time - self.now, time
        self.seats += passed * (len(self.running) + len(self.prefilling))
        if busy:
            self.prefill += passed
        elif self.running:
            self.decode += passed
            self.grown += passed / self.step
        else:
            self.idle += passed

    def send(self, turn: Turn, time: float) -> None:
        """A turn arrives."""
        self.advance(time)
        self.load += 1
        self.waiting.append(turn)
        self._admit()

    def pause(self, time: float, seconds: float) -> None:
        """New weights arrive: nothing else happens for so long. Counted with prefill."""
        self.advance(time)
        self.until = max(self.until, time) + seconds

    def happen(self, time: float) -> list[Turn]:
        """What happens at its next event; the turns that are finished by it."""
        finished: list[Turn] = []
        self.advance(time)
        for turn in self.prefilling:
            heapq.heappush(self.running, (self.grown + turn.reply, self.order, turn))
            self.order += 1
            self.context += turn.prompt - self.grown
        self.prefilling = []
        while self.running and self.running[0][0] <= self.grown + ROUNDING:
            goal, _, turn = heapq.heappop(self.running)
            self.context -= turn.prompt - (goal - turn.reply)
            self.held -= turn.prompt + self.reserve
            self.written += turn.reply
            self.load -= 1
            finished.append(turn)
        self._admit()
        return finished

    def _admit(self) -> None:
        """Begin to read what waits and fits, unless it is reading already; else set the pace of decoding."""
        if self.busy:
            return
        seconds = 0.0
        while self.waiting and self._fits(self.waiting[0]):
            turn = self.waiting.popleft()
            self.held += turn.prompt + self.reserve
            self.read += turn.prompt
            seconds += self.engine.prefill(turn.prompt)
            self.prefilling.append(turn)
        self.until = self.now + seconds
        if self.running:
            self.step = self.engine.decode(len(self.running), self.context + len(self.running) * self.grown)

    def _fits(self, turn: Turn) -> bool:
        running = len(self.running) + len(self.prefilling)
        return running < self.max_running and self.held + turn.prompt + self.reserve <= self.room


class Fleet:
    """Replicas and one clock."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.replicas = list(replicas)
        self._events: list[tuple[float, int, int, int]] = []
        self._count = 0

    def _file(self, index: int) -> None:
        replica = self.replicas[index]
        replica.stamp += 1
        if (time := replica.next_event) < inf:
            self._push(time, index, replica.stamp)

    def _push(self, time: float, index: int, stamp: int) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, index, stamp))

    def send(self, index: int, turn: Turn, time: float) -> None:
        self.replicas[index].send(turn, time)
        self._file(index)

    def pause(self, time: float, seconds: float) -> None:
        for index, replica in enumerate(self.replicas):
            replica.pause(time, seconds)
            self._file(index)

    def wake(self, time: float) -> None:
        """Return from `next` at that time, without a replica."""
        self._push(time, -1, 0)

    def next(self) -> tuple[float, int, list[Turn]] | None:
        """Time, replica (-1: a call of `wake`) and finished turns of the next event; None when nothing is left."""
        while self._events:
            time, _, index, stamp = heapq.heappop(self._events)
            if index < 0:
                return time, index, []
            if stamp == self.replicas[index].stamp:
                finished = self.replicas[index].happen(time)
                self._file(index)
                return time, index, finished
        return None

    def settle(self, time: float) -> None:
        for replica in self.replicas:
            replica.advance(time)

    def idle(self) -> float:
        """Seconds in which replicas had nothing to do, over all of them."""
        return sum(replica.idle for replica in self.replicas)


def fleet(engine: Engine, count: int, room: float, experiment: Experiment) -> Fleet:
    """`count` replicas with a cache of `room` tokens each; a turn holds its prompt and the longest reply."""
    if room < window(experiment):
        raise ValueError(f"a cache of {room:,.0f} tokens: a turn needs {window(experiment):,}; use more GPUs or memory")
    reserve = int(experiment.reply_limit)
    return Fleet([Replica(engine, room, experiment.max_running, reserve) for _ in range(count)])


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One rollout batch: its seconds, and how the replicas spent them on average."""

    seconds: float
    prefill: float
    decode: float
    idle: float
    running: float
    read: int
    written: int

    @property
    def idle_share(self) -> float:
        return self.idle / self.seconds


def _rollout(fleet: Fleet, seconds: float) -> Rollout:
    fleet.settle(seconds)
    replicas, count = fleet.replicas, len(fleet.replicas)
    return Rollout(
        seconds=seconds,
        prefill=sum(replica.prefill for replica in replicas) / count,
        decode=sum(replica.decode for replica in replicas) / count,
        idle=fleet.idle() / count,
        running=sum(replica.seats for replica in replicas) / count / seconds,
        read=sum(replica.read for replica in replicas),
        written=sum(replica.written for replica in replicas),
    )


def _turn(readings: Sequence[Reading], reading: int, number: int) -> Turn:
    return Turn(reading, number, readings[reading].prompts[number], readings[reading].replies[number])


def _play(fleet: Fleet, then: Callable[[float, int, Turn], None]) -> float:
    """To the end; `then` hears of every finished turn. The time of the last one."""
    end = 0.0
    while event := fleet.next():
        time, index, finished = event
        for turn in finished:
            end = time
            then(time, index, turn)
    return end


def lockstep(readings: Sequence[Reading], fleet: Fleet) -> Rollout:
    """Every turn waits for the slowest reading of the one before; all answers in one turn at the end."""
    memories = max(len(reading.prompts) for reading in readings) - 1
    time = 0.0
    for number in [*range(memories), -1]:
        for index, reading in enumerate(readings):
            if number < len(reading.prompts) - 1:
                fleet.send(index % len(fleet.replicas), _turn(readings, index, number), time)
        time = _play(fleet, lambda *_: None)
    return _rollout(fleet, time)


def on_their_own(readings: Sequence[Reading], fleet: Fleet) -> Rollout:
    """A reading's next turn follows at once, on the same replica."""

    def then(time: float, index: int, turn: Turn) -> None:
        if turn.number + 1 < len(readings[turn.reading].prompts):
            fleet.send(index, _turn(readings, turn.reading, turn.number + 1), time)

    for index in range(len(readings)):
        fleet.send(index % len(fleet.replicas), _turn(readings, index, 0), 0.0)
    return _rollout(fleet, _play(fleet, then))


@dataclass(frozen=True, kw_only=True)
class Asynchronous:
    """Steady state of asynchronous rollouts: seconds from step to step, and the shares of time with nothing to do."""

    seconds: float
    rollout_idle: float
    trainer_idle: float
    oldest: int
    written: int


@dataclass
class _Trainer:
    """Which groups are out or wait, and since which version of the weights; takes the oldest, never one too stale."""

    group: int
    prompts: int
    staleness: int
    version: int = 0
    out: int = 0
    oldest: int = 0
    born: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    ready: list[tuple[int, int]] = field(default_factory=list)
    open: Counter[int] = field(default_factory=Counter)

    def start(self) -> Iterator[int]:
        """Groups that start now: as many as these weights may still be trained on, and no more than a batch at once."""
        limit = (self.version + self.staleness + 1) * self.prompts
        while len(self.born) < limit and self.out + self.group <= self.prompts * self.group:
            self.born.append(self.version)
            self.left.append(self.group)
            self.open[self.version] += 1
            self.out += self.group
            yield len(self.born) - 1

    def finish(self, group: int) -> None:
        """One reading of the group is done."""
        self.out -= 1
        self.left[group] -= 1
        if not self.left[group]:
            heapq.heappush(self.ready, (self.born[group], group))
            self.open[self.born[group]] -= 1

    def take(self) -> bool:
        """Whether a step can start; then its groups are taken."""
        late = any(count for born, count in self.open.items() if born <= self.version - self.staleness)
        if late or len(self.ready) < self.prompts:
            return False
        for _ in range(self.prompts):
            born, _ = heapq.heappop(self.ready)
            self.oldest = max(self.oldest, self.version - born)
        return True


def asynchronous(
    batches: Sequence[Sequence[Reading]], fleet: Fleet, *,
    train: float, sync: float, staleness: int, steps: int, group: int, warm: int = 2, drain: bool = False,
) -> Asynchronous:  # fmt: skip
    """Readings start as others finish, a rollout batch of them at once, while training steps of `train` seconds run.

    New weights stop the replicas for `sync` seconds. `batches` feeds the readings in order, steps + staleness + 1 of
    them. The first `warm` steps are left out of the averages. With `drain`, what is out after the last step is finished.
    """
    readings = [reading for batch in batches for reading in batch]
    trainer = _Trainer(group, len(batches[0]) // group, staleness)
    marks: list[tuple[float, float]] = []
    began, free = inf, 0.0

    def start(time: float) -> None:
        for number in trainer.start():
            for reading in range(number * group, (number + 1) * group):
                loads = [replica.load for replica in fleet.replicas]
                fleet.send(loads.index(min(loads)), _turn(readings, reading, 0), time)

    start(0.0)
    while event := fleet.next():
        time, index, finished = event
        for turn in finished:
            if turn.number + 1 < len(readings[turn.reading].prompts):
                fleet.send(index, _turn(readings, turn.reading, turn.number + 1), time)
            else:
                trainer.finish(turn.reading // group)
        if finished:
            start(time)
        if time >= began + train:
            began, free = inf, time + sync
            trainer.version += 1
            fleet.settle(time)
            marks.append((time, fleet.idle()))
            if trainer.version == steps and not drain:
                break
            fleet.pause(time, sync)
            start(time)
            fleet.wake(free)
        if began == inf and time >= free and trainer.version < steps and trainer.take():
            began = time
            fleet.wake(time + train)
    (first, idle_first), (last, idle_last) = marks[warm - 1], marks[-1]
    seconds = (last - first) / (steps - warm)
    return Asynchronous(
        seconds=seconds,
        rollout_idle=(idle_last - idle_first) / (last - first) / len(fleet.replicas),
        trainer_idle=max(0.0, 1 - (train + sync) / seconds),
        oldest=trainer.oldest,
        written=sum(replica.written for replica in fleet.replicas),
    )
