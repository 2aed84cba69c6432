"""Readings → the numbers of a report: cells of task × length × contender, differences, lines, depths. Pure.

A contender is what is compared: a reader with a model and settings. Failures count as 0 in every mean; no reading is left
out of a denominator.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from memagent.evaluation.records import Record
from memagent.evaluation.statistics import Difference, Interval, Line, fit_line, paired_difference, wilson

DEPTHS = 10
_POWER_NEAR = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One reading, without its turns. `length` is its length class in tokens, `depth` where its only needed fact stands."""

    contender: str
    sample: str
    task: str
    length: int
    tokens: int
    score: float
    failure: str | None
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    turns: int
    depth: float | None


def row_of(record: Record, contender: str, score: float) -> Row:
    """The row of a record.

    A sample is known by its id, its question and the length of its document: runs over different files that hold the same
    samples can be paired.
    """
    return Row(
        contender=contender,
        sample=f"{record.sample}\0{record.question}\0{record.characters}",
        task=record.task,
        length=length_class(record),
        tokens=record.tokens,
        score=score,
        failure=(record.error_kind or "failed") if record.status == "failed" else None,
        seconds=record.seconds,
        prompt_tokens=sum(turn.prompt_tokens for turn in record.turns),
        completion_tokens=sum(turn.completion_tokens for turn in record.turns),
        turns=len(record.turns),
        depth=_depth(record),
    )


def length_class(record: Record) -> int:
    """The length that readings are grouped by: the one the task was asked for, if it says so ("target").

    Else a power of two that is at most 2 % away, else two significant digits.
    """
    target = record.meta.get("target")
    if isinstance(target, int) and target > 0:
        return target
    tokens = record.tokens
    if tokens < 1:
        return 0
    power = 1 << round(math.log2(tokens))
    if abs(tokens - power) <= _POWER_NEAR * power:
        return power
    return int(float(f"{tokens:.2g}"))


Key: TypeAlias = tuple[str, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The readings of one contender at one task and length.

    `mean` and `interval` are over samples, the attempts at a sample averaged first. `failures` counts readings by kind.
    Means of tokens, seconds and turns are over the readings that ended with an answer; None if none did.
    """

    task: str
    length: int
    contender: str
    samples: int
    readings: int
    mean: float
    interval: Interval
    failures: Mapping[str, int]
    seconds: float | None
    prompt_tokens: float | None
    completion_tokens: float | None
    turns: float | None

    @property
    def failed(self) -> int:
        return sum(self.failures.values())

    @property
    def too_long(self) -> bool:
        """Every reading failed because the document does not fit this reader."""
        return self.failures.get("too_long", 0) == self.readings


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How time and tokens grow with the length of the document, by readings that ended with an answer."""

    seconds: Line | None
    tokens: Line | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Everything that is counted. `differences` are against the first contender, by (task, length, other contender)."""

    contenders: tuple[str, ...]
    tasks: tuple[str, ...]
    lengths: tuple[int, ...]
    cells: Mapping[Key, Cell]
    means: Mapping[tuple[int, str], tuple[float, int]]
    differences: Mapping[Key, Difference]
    growth: Mapping[str, Growth]
    depths: Mapping[tuple[str, int, int], tuple[float, int]]

    def lengths_of(self, task: str) -> tuple[int, ...]:
        """The lengths that a task was run at."""
        return tuple(length for length in self.lengths if any((task, length, one) in self.cells for one in self.contenders))


def summarize(rows: Sequence[Row], contenders: Sequence[str]) -> Summary:
    """Counts the rows. `contenders` are in the order of the report; the others are compared with the first."""
    grouped: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row.task, row.length, row.contender].append(row)
    cells = {key: _cell(key, group) for key, group in grouped.items()}
    return Summary(
        contenders=tuple(contenders),
        tasks=tuple(sorted({task for task, _, _ in cells})),
        lengths=tuple(sorted({length for _, length, _ in cells})),
        cells=cells,
        means=_means(cells.values()),
        differences=_differences(grouped, contenders),
        growth={one: _growth([row for row in rows if row.contender == one]) for one in contenders},
        depths=_depths(rows),
    )


def _cell(key: Key, rows: Sequence[Row]) -> Cell:
    task, length, contender = key
    by_sample = _by_sample(rows)
    total = sum(sum(scores) / len(scores) for scores in by_sample.values())
    answered = [row for row in rows if row.failure is None]

    def over_answered(values: Iterable[float]) -> float | None:
        return sum(values) / len(answered) if answered else None

    return Cell(
        task=task,
        length=length,
        contender=contender,
        samples=len(by_sample),
        readings=len(rows),
        mean=total / len(by_sample),
        interval=wilson(total, len(by_sample)),
        failures=Counter(row.failure for row in rows if row.failure is not None),
        seconds=over_answered(row.seconds for row in answered),
        prompt_tokens=over_answered(row.prompt_tokens for row in answered),
        completion_tokens=over_answered(row.completion_tokens for row in answered),
        turns=over_answered(row.turns for row in answered),
    )


def _by_sample(rows: Iterable[Row]) -> dict[str, list[float]]:
    scores: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        scores[row.sample].append(row.score)
    return scores


def _means(cells: Iterable[Cell]) -> dict[tuple[int, str], tuple[float, int]]:
    """(length, contender) → mean over its tasks, each with the same weight, and how many tasks."""
    means: dict[tuple[int, str], list[float]] = defaultdict(list)
    for cell in cells:
        means[cell.length, cell.contender].append(cell.mean)
    return {key: (sum(values) / len(values), len(values)) for key, values in means.items()}


def _differences(grouped: Mapping[Key, Sequence[Row]], contenders: Sequence[str]) -> dict[Key, Difference]:
    found: dict[Key, Difference] = {}
    for task, length, other in grouped:
        first = grouped.get((task, length, contenders[0]))
        if first is None or other == contenders[0]:
            continue
        difference = paired_difference(_by_sample(first), _by_sample(grouped[task, length, other]))
        if difference is not None:
            found[task, length, other] = difference
    return found


def _growth(rows: Sequence[Row]) -> Growth:
    answered = [row for row in rows if row.failure is None and row.tokens]
    return Growth(
        seconds=fit_line([(row.tokens, row.seconds) for row in answered]),
        tokens=fit_line([(row.tokens, row.prompt_tokens + row.completion_tokens) for row in answered]),
    )


def _depth(record: Record) -> float | None:
    """Where the needed fact stands, from 0 to 1: as the task says, else by its middle if it is the only one."""
    depth = record.meta.get("depth")
    if isinstance(depth, int | float) and not isinstance(depth, bool) and 0 <= depth <= 1:
        return float(depth)
    needed = [fact for fact in record.facts if fact.needed]
    if len(needed) != 1 or not record.characters:
        return None
    return min(1.0, (needed[0].start + needed[0].end) / 2 / record.characters)


def _depths(rows: Iterable[Row]) -> dict[tuple[str, int, int], tuple[float, int]]:
    """(contender, length, tenth of the document) → mean score and number of readings."""
    found: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for row in rows:
        if row.depth is not None:
            found[row.contender, row.length, min(DEPTHS - 1, int(row.depth * DEPTHS))].append(row.score)
    return {key: (sum(scores) / len(scores), len(scores)) for key, scores in found.items()}
