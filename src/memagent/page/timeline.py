"""The turns of a reading as steps: each turn that changed the memory, and runs of turns that did not.

At most STEPS of them are kept, the first and the last, whatever the number of turns; memory use does not grow with it.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, replace

from memagent.core import Span
from memagent.core.spans import merged
from memagent.journal import TurnEntry

STEPS = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Turns `first` to `last`, numbered from 0. They left the memory as it was, or it is one turn and `after` is another.

    `outcomes` counts what came of them. `spans` are what they showed, those that touch as one. `answers`: it is a turn that
    gave an answer.
    """

    first: int
    last: int
    outcomes: tuple[tuple[str, int], ...]
    spans: tuple[Span, ...]
    before: str
    after: str
    answers: bool = False

    @property
    def changed(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Turns, in the middle of a long reading, that are not among the steps."""

    first: int
    last: int
    changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The first steps, what was left out after them, and the last ones; `memory` is the last memory."""

    steps: tuple[Step, ...] = ()
    left_out: LeftOut | None = None
    later: tuple[Step, ...] = ()
    memory: str = ""

    @property
    def changes(self) -> int:
        """The number of turns that changed the memory."""
        here = sum(step.changed for step in (*self.steps, *self.later))
        return here + (self.left_out.changes if self.left_out else 0)

    def holding(self, turn: int) -> Step | None:
        """The step that a turn is part of."""
        return next((step for step in (*self.steps, *self.later) if step.first <= turn <= step.last), None)


class Follower:
    """Takes the turns of a reading one by one, in order."""

    def __init__(self, memory: str = "", limit: int = STEPS) -> None:
        self._memory = memory
        self._open: Step | None = None
        self._first: list[Step] = []
        self._last: deque[Step] = deque()
        self._room = (limit - limit // 2, limit // 2)
        self._left: LeftOut | None = None

    def take(self, entry: TurnEntry) -> None:
        step = Step(
            first=entry.number,
            last=entry.number,
            outcomes=((entry.outcome, 1),),
            spans=tuple(merged(entry.shown)),
            before=self._memory,
            after=entry.memory,
            answers=entry.kind == "answer",
        )
        self._memory = entry.memory
        if self._open is not None and _quiet(self._open) and _quiet(step):
            self._open = _together(self._open, step)
            return
        self._settle()
        self._open = step

    def timeline(self) -> Timeline:
        """The steps of the turns so far. Nothing can be taken afterwards."""
        self._settle()
        return Timeline(steps=tuple(self._first), left_out=self._left, later=tuple(self._last), memory=self._memory)

    def _settle(self) -> None:
        if self._open is None:
            return
        if len(self._first) < self._room[0]:
            self._first.append(self._open)
        else:
            self._last.append(self._open)
        self._open = None
        if len(self._last) > self._room[1]:
            self._leave_out(self._last.popleft())

    def _leave_out(self, step: Step) -> None:
        before = self._left or LeftOut(first=step.first, last=step.last, changes=0)
        self._left = replace(before, last=step.last, changes=before.changes + step.changed)


def _quiet(step: Step) -> bool:
    return not step.changed and not step.answers


def _together(one: Step, other: Step) -> Step:
    counts = Counter(dict(one.outcomes)) + Counter(dict(other.outcomes))
    spans = tuple(merged([*one.spans, *other.spans]))
    return replace(one, last=other.last, outcomes=tuple(counts.items()), spans=spans)
