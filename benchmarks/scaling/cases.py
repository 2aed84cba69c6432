"""One training step of a model on a number of GPUs, with three ways of reading: arithmetic and simulation together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from benchmarks.scaling.model import (
    Experiment,
    Machine,
    Phase,
    Shape,
    engine,
    kv_room,
    micro_batch,
    resident_states,
    score,
    sync_seconds,
    update,
    window,
)
from benchmarks.scaling.simulation import (
    Asynchronous,
    Fleet,
    Reading,
    Rollout,
    asynchronous,
    draw,
    fleet,
    lockstep,
    on_their_own,
)

STEPS, WARM = 7, 4  # of asynchronous training: played, and left out of the averages


@dataclass(frozen=True, kw_only=True)
class Split:
    """Asynchronous rollouts: GPUs that read, seconds a step by which rows are uneven, and how it went."""

    gpus: int
    readers: int
    uneven: float
    run: Asynchronous

    @property
    def waits(self) -> tuple[float, float]:
        """Shares of all GPU time without work: in rollout; in training, for readings or for the fullest GPU."""
        reading, run = self.readers / self.gpus, self.run
        return reading * run.rollout_idle, (1 - reading) * (run.trainer_idle + self.uneven / run.seconds)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A step on GPUs that do everything in turns, with readings in lockstep and on their own."""

    shape: Shape
    gpus: int
    readings: list[Reading]
    locked: Rollout
    own: Rollout
    scored: Phase
    updated: Phase
    sync: float

    @property
    def tokens(self) -> int:
        """Tokens trained on."""
        return sum(rows_of(self.readings))

    def step(self, rollout: Rollout) -> float:
        """Seconds: rollout, log-probabilities under two models, update and weight sync follow each other."""
        return rollout.seconds + 2 * self.scored.seconds + self.updated.seconds + self.sync

    def waits(self, rollout: Rollout) -> tuple[float, float]:
        """Shares of all GPU time without work: in rollout; in training, for the fullest GPU."""
        uneven = 2 * (self.scored.seconds - self.scored.even) + self.updated.seconds - self.updated.even
        return rollout.idle / self.step(rollout), uneven / self.step(rollout)

    @property
    def slowest(self) -> str:
        """The longest phase, with readings on their own, and what bounds it."""
        parts = {
            "rollout, prefill": self.own.prefill,
            "rollout, decode": self.own.decode + self.own.idle,
            f"log-probabilities, {self.scored.bound}": 2 * self.scored.seconds,
            f"update, {self.updated.bound}": self.updated.seconds,
        }
        name = max(parts, key=lambda name: parts[name])
        return f"{name}, {parts[name] / self.step(self.own):.0%}"


def rows_of(readings: Iterable[Reading]) -> list[int]:
    """Tokens of all their conversations."""
    return [row for reading in readings for row in reading.rows]


def mini_batches(readings: Sequence[Reading], experiment: Experiment) -> list[list[int]]:
    """Rows of each update: whole groups, the same number of them in each."""
    size = max(len(readings) // int(experiment.updates), 1)
    return [rows_of(readings[start : start + size]) for start in range(0, len(readings), size)]


def fits(shape: Shape, gpus: int, machine: Machine, experiment: Experiment) -> bool:
    """Whether the update fits, and a turn beside the training states in a rollout."""
    room = kv_room(shape, resident_states(shape, gpus), machine)
    return micro_batch(shape, gpus, machine, experiment) > 0 and room >= window(experiment)


def smallest(shape: Shape, machine: Machine, experiment: Experiment) -> int:
    """The fewest whole machines, in GPUs, on which it fits."""
    whole = int(machine.per_machine)
    return next(gpus for gpus in range(whole, 4096, whole) if fits(shape, gpus, machine, experiment))


def case(shape: Shape, gpus: int, machine: Machine, experiment: Experiment, seed: int) -> Case:
    """Everything about one step of a model that fits."""
    readings = draw(experiment, shape.prompts, seed)
    room, replicas = kv_room(shape, resident_states(shape, gpus), machine), gpus // shape.tensor_parallel
    locked, own = (
        play(readings, fleet(engine(shape, machine), replicas, room, experiment)) for play in (lockstep, on_their_own)
    )
    return Case(
        shape=shape,
        gpus=gpus,
        readings=readings,
        locked=locked,
        own=own,
        scored=score(shape, rows_of(readings), gpus, machine, experiment),
        updated=update(shape, mini_batches(readings, experiment), gpus, machine, experiment),
        sync=sync_seconds(shape, gpus, machine),
    )


def best_split(one: Case, machine: Machine, experiment: Experiment, seed: int) -> Split | None:
    """The faster of two splits: the fewest readers that keep up with the trainer, and one unit less.

    A unit is a replica, or a machine where there are several. None where no trainer fits beside a reader.
    """
    shape, gpus, readings = one.shape, one.gpus, one.readings
    unit = shape.tensor_parallel if gpus <= machine.per_machine else int(machine.per_machine)
    possible = [size for size in range(unit, gpus, unit) if micro_batch(shape, gpus - size, machine, experiment)]
    rows, batches = rows_of(readings), mini_batches(readings, experiment)
    staleness = int(experiment.staleness)
    feed = [draw(experiment, shape.prompts, seed, batch) for batch in range(STEPS + staleness + 1)]

    @cache
    def training(size: int) -> tuple[float, float]:
        scored = score(shape, rows, gpus - size, machine, experiment)
        updated = update(shape, batches, gpus - size, machine, experiment)
        return 2 * scored.seconds + updated.seconds, 2 * scored.even + updated.even

    def readers(size: int) -> Fleet:
        return fleet(engine(shape, machine), size // shape.tensor_parallel, kv_room(shape, 0, machine), experiment)

    def keep_up(size: int) -> bool:
        return on_their_own(readings, readers(size)).seconds <= training(size)[0]

    def split(size: int) -> Split:
        seconds, even = training(size)
        run = asynchronous(
            feed,
            readers(size),
            train=seconds,
            sync=one.sync,
            staleness=staleness,
            steps=STEPS,
            warm=WARM,
            group=int(experiment.group),
        )
        return Split(gpus=gpus, readers=size, uneven=seconds - even, run=run)

    at = bisect_left(possible, True, key=keep_up)
    return min(map(split, possible[max(at - 1, 0) : at + 1]), key=lambda found: found.run.seconds, default=None)
