"""Counts over the diagnoses of many readings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from memagent.evaluation.diagnosis import Diagnosis, Verdict
from memagent.evaluation.statistics import Interval, wilson

STEPS = 437  # the paper's longest documents have 437 windows
_OVERFLOW = ("fitted", "retry_long")
_EMPTY = ("empty", "retry_empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The share `p` of memory updates that kept a fact, of `steps` updates that began with it in the memory.

    The Wilson interval assumes independent steps. Facts and readings differ, so it tends to be too narrow. `far`
    extrapolates: the probability to survive `STEPS` updates in a row if each is like those seen.
    """

    p: float
    steps: int
    interval: Interval

    @property
    def far(self) -> float:
        return float(self.p**STEPS)

    @property
    def far_interval(self) -> Interval:
        return Interval(float(self.interval.low**STEPS), float(self.interval.high**STEPS))


@dataclass(slots=True)
class Tally:
    """Counts over readings, and over the needed facts in them that have a value to look for (`facts`)."""

    readings: int = 0
    failed: int = 0
    turns: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: Counter[Verdict] = field(default_factory=Counter)
    facts: int = 0
    kept: int = 0
    missed: int = 0
    cut: int = 0
    drifted: int = 0
    regained: int = 0
    held_steps: int = 0
    lost_steps: int = 0
    covered: list[float] = field(default_factory=list)
    right_when_covered: list[float] = field(default_factory=list)
    fillers: list[float] = field(default_factory=list)

    def add(self, diagnosis: Diagnosis, score: float) -> None:
        """Counts one reading, and classifies it if it scored less than 1. Facts that were never shown are not counted."""
        self.readings += 1
        self.failed += diagnosis.failed
        self.turns += sum(diagnosis.outcomes.values())
        self.outcomes.update(diagnosis.outcomes)
        if score < 1:
            self.wrong[diagnosis.verdict] += 1
        if diagnosis.filler is not None:
            self.fillers.append(diagnosis.filler)
        if diagnosis.coverage is not None and not diagnosis.failed:
            self.covered.append(diagnosis.coverage)
            if diagnosis.coverage == 1:
                self.right_when_covered.append(score)
        for trace in diagnosis.traces if diagnosis.updates else ():
            if not trace.followed or trace.shown is None:
                continue
            self.facts += 1
            self.kept += bool(trace.gains)
            self.missed += trace.missed
            self.cut += not trace.whole
            self.drifted += trace.drifted
            self.regained += len(trace.gains) > 1
            self.held_steps += trace.held
            self.lost_steps += len(trace.losses)

    def __add__(self, other: Tally) -> Tally:
        """The sum of both."""
        return Tally(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))

    @property
    def retention(self) -> Retention | None:
        """None if no update began with a fact in the memory."""
        steps = self.held_steps + self.lost_steps
        if not steps:
            return None
        return Retention(p=self.held_steps / steps, steps=steps, interval=wilson(self.held_steps, steps))

    @property
    def overflow(self) -> int:
        """Turns whose reply exceeded the memory budget, whether repeated or cut."""
        return sum(self.outcomes[name] for name in _OVERFLOW)

    @property
    def full(self) -> int:
        """Turns of `append` without room for all notes: the oldest lines were dropped, or the reply was cut."""
        return self.outcomes["full"]

    @property
    def empty(self) -> int:
        """Turns whose reply was empty."""
        return sum(self.outcomes[name] for name in _EMPTY)

    @property
    def unchanged(self) -> int:
        """Turns whose reply said that nothing changes."""
        return self.outcomes["unchanged"]

    @property
    def filler(self) -> float | None:
        return mean(self.fillers)

    @property
    def coverage(self) -> float | None:
        """The mean share of the needed facts that readings were shown."""
        return mean(self.covered)


def mean(values: list[float]) -> float | None:
    """The mean, or None without values."""
    return sum(values) / len(values) if values else None
