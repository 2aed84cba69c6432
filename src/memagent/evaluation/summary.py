"""Computes the numbers of a report from readings: cells of task × length × system, differences, lines, depths. Pure.

The compared systems are readers with a model and settings. Failures count as 0 in every mean, and every reading counts
in the denominators.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from memagent.evaluation.records import Record
from memagent.evaluation.statistics import Difference, Interval, Line, fit_line, paired_difference, wilson
from memagent.tasks.samples import Sample

_BINS = 10
_DEPTHS_MOST = 21  # up to this number, the depths of a task are separate rows
_POWER_OVER = 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One reading, without its turns.

    `length` is its length class in tokens. `ranged` means that the class contains all lengths up to it, because no
    length was requested. `depth` is the position of the only needed fact; `depth_told` means that the task stated it.
    """

    system: str
    sample: str
    task: str
    length: int
    ranged: bool
    tokens: int
    score: float
    failure: str | None
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    turns: int
    depth: float | None
    depth_told: bool


def row_of(record: Record, system: str, score: float) -> Row:
    """The row of a record.

    A sample is identified by its id, its question and the length of its document, so runs over different files with the
    same samples can be paired.
    """
    told = _told_depth(record)
    return Row(
        system=system,
        sample=f"{record.sample}\0{record.question}\0{record.characters}",
        task=record.task,
        length=length_class(record),
        ranged=record.tokens > 0 and "target" not in record.meta,
        tokens=record.tokens,
        score=score,
        failure=(record.error_kind or "failed") if record.status == "failed" else None,
        seconds=record.seconds,
        prompt_tokens=sum(turn.prompt_tokens for turn in record.turns),
        completion_tokens=sum(turn.completion_tokens for turn in record.turns),
        turns=len(record.turns),
        depth=_middle(record) if told is None else told,
        depth_told=told is not None,
    )


def length_class(record: Record | Sample) -> int:
    """The length that readings are grouped by: the requested length, if it is known ("target").

    Otherwise the next power of two, or one that is at most 2 % smaller. 0 if the length is unknown.
    """
    target = record.meta.get("target")
    if target is not None:
        return int(target)
    if record.tokens < 1:
        return 0
    power = 1 << (record.tokens - 1).bit_length()
    return power // 2 if record.tokens <= power // 2 * _POWER_OVER else power


Key: TypeAlias = tuple[str, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The readings of one system at one task and length.

    `mean` and `interval` are over samples, the attempts at a sample averaged first. `failures` counts readings by kind.
    Means of tokens, seconds and turns are over the readings that ended with an answer, and None without any. `document` is
    the mean length of their documents in tokens.
    """

    task: str
    length: int
    system: str
    samples: int
    readings: int
    mean: float
    interval: Interval
    failures: Mapping[str, int]
    document: float | None
    seconds: float | None
    prompt_tokens: float | None
    completion_tokens: float | None
    turns: float | None

    @property
    def right(self) -> float:
        """The sum of the scores of the samples."""
        return round(self.mean * self.samples, 6)

    @property
    def failed(self) -> int:
        return sum(self.failures.values())

    @property
    def too_long(self) -> bool:
        """Whether every reading failed because the document does not fit this reader."""
        return self.failures.get("too_long", 0) == self.readings


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How time and tokens grow with the length of the document, by readings that ended with an answer.

    Lines need several length classes: within one, lengths differ too little for a meaningful slope. `times` is the
    number of distinct times: readings of one batch share its time.
    """

    seconds: Line | None
    tokens: Line | None
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthMap:
    """Accuracy by depth and length: one system at one task.

    `rows` are ranges of depth within 0 to 1; both ends are equal if the task names few depths. `cells` has the mean
    score and the number of readings by (row number, length). All maps of a task have the same rows.
    """

    task: str
    system: str
    rows: tuple[tuple[float, float], ...]
    lengths: tuple[int, ...]
    cells: Mapping[tuple[int, int], tuple[float, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All numbers. `differences` are against the first system, by (task, length, other system).

    `ranges` are the lengths that mean all lengths up to them in at least one reading. `means` are over the tasks in
    `compared`: at each length, those that every system with readings of that length has read.
    """

    systems: tuple[str, ...]
    tasks: tuple[str, ...]
    lengths: tuple[int, ...]
    ranges: frozenset[int]
    cells: Mapping[Key, Cell]
    compared: Mapping[int, tuple[str, ...]]
    means: Mapping[tuple[int, str], tuple[float, int]]
    differences: Mapping[Key, Difference]
    growth: Mapping[str, Growth]
    depths: tuple[DepthMap, ...]

    @property
    def partly_compared(self) -> dict[int, tuple[str, ...]]:
        """`compared`, where it is not all tasks."""
        return {length: self.compared[length] for length in self.lengths if self.compared[length] != self.tasks}

    def lengths_of(self, task: str) -> tuple[int, ...]:
        """The lengths that a task was run at."""
        return tuple(length for length in self.lengths if any((task, length, one) in self.cells for one in self.systems))


def summarize(rows: Sequence[Row], systems: Sequence[str]) -> Summary:
    """Summarises the rows. `systems` are in the order of the report; the others are compared with the first."""
    grouped: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row.task, row.length, row.system].append(row)
    cells = {key: cell_of(key, group) for key, group in grouped.items()}
    compared = _compared(cells)
    return Summary(
        systems=tuple(systems),
        tasks=tuple(sorted({task for task, _, _ in cells})),
        lengths=tuple(sorted({length for _, length, _ in cells})),
        ranges=frozenset(row.length for row in rows if row.ranged),
        cells=cells,
        compared=compared,
        means=_means(cells.values(), compared),
        differences=_differences(grouped, systems),
        growth={one: _growth([row for row in rows if row.system == one]) for one in systems},
        depths=tuple(_depth_maps(rows, systems)),
    )


def cell_of(key: Key, rows: Sequence[Row]) -> Cell:
    """What these rows come to. `key` is only its name: the rows may be of several tasks and lengths."""
    task, length, system = key
    by_sample = _by_sample(rows)
    total = sum(sum(scores) / len(scores) for scores in by_sample.values())
    answered = [row for row in rows if row.failure is None]

    def over_answered(values: Iterable[float]) -> float | None:
        return sum(values) / len(answered) if answered else None

    return Cell(
        task=task,
        length=length,
        system=system,
        samples=len(by_sample),
        readings=len(rows),
        mean=total / len(by_sample),
        interval=wilson(total, len(by_sample)),
        failures=Counter(row.failure for row in rows if row.failure is not None),
        document=over_answered(row.tokens for row in answered),
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


def _compared(keys: Iterable[Key]) -> dict[int, tuple[str, ...]]:
    """Length → the tasks that all systems with readings of that length have read."""
    read: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for task, length, system in keys:
        read[length][system].add(task)
    return {length: tuple(sorted(set.intersection(*tasks.values()))) for length, tasks in read.items()}


def _means(cells: Iterable[Cell], compared: Mapping[int, Sequence[str]]) -> dict[tuple[int, str], tuple[float, int]]:
    """(length, system) → the mean over the compared tasks with equal weights, and the number of tasks."""
    means: dict[tuple[int, str], list[float]] = defaultdict(list)
    for cell in cells:
        if cell.task in compared[cell.length]:
            means[cell.length, cell.system].append(cell.mean)
    return {key: (sum(values) / len(values), len(values)) for key, values in means.items()}


def _differences(grouped: Mapping[Key, Sequence[Row]], systems: Sequence[str]) -> dict[Key, Difference]:
    found: dict[Key, Difference] = {}
    for task, length, other in grouped:
        first = grouped.get((task, length, systems[0]))
        if first is None or other == systems[0]:
            continue
        difference = paired_difference(_by_sample(first), _by_sample(grouped[task, length, other]))
        if difference is not None:
            found[task, length, other] = difference
    return found


def _growth(rows: Sequence[Row]) -> Growth:
    answered = [row for row in rows if row.failure is None and row.tokens]
    fitted = answered if len({row.length for row in answered}) > 1 else []
    return Growth(
        seconds=fit_line([(row.tokens, row.seconds) for row in fitted]),
        tokens=fit_line([(row.tokens, row.prompt_tokens + row.completion_tokens) for row in fitted]),
        times=len({row.seconds for row in answered}),
    )


def _told_depth(record: Record) -> float | None:
    """Where the needed fact stands, from 0 to 1, as the task says."""
    depth = record.meta.get("depth")
    if isinstance(depth, int | float) and not isinstance(depth, bool) and 0 <= depth <= 1:
        return float(depth)
    return None


def _middle(record: Record) -> float | None:
    """Where the middle of the needed fact stands, if it is the only one."""
    needed = [fact for fact in record.facts if fact.needed]
    if len(needed) != 1 or not record.characters:
        return None
    return min(1.0, (needed[0].start + needed[0].end) / 2 / record.characters)


def _depth_maps(rows: Iterable[Row], systems: Sequence[str]) -> Iterator[DepthMap]:
    by_task: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.depth is not None:
            by_task[row.task].append(row)
    for task, placed in sorted(by_task.items()):
        depths = sorted({row.depth for row in placed if row.depth is not None})
        named = len(depths) <= _DEPTHS_MOST and all(row.depth_told for row in placed)
        bins = tuple((depth, depth) for depth in depths) if named else _tenths()
        for one in systems:
            found: dict[tuple[int, int], list[float]] = defaultdict(list)
            for row in placed:
                if row.system == one and row.depth is not None:
                    which = depths.index(row.depth) if named else min(_BINS - 1, int(row.depth * _BINS))
                    found[which, row.length].append(row.score)
            if found:
                yield DepthMap(
                    task=task,
                    system=one,
                    rows=bins,
                    lengths=tuple(sorted({length for _, length in found})),
                    cells={key: (sum(scores) / len(scores), len(scores)) for key, scores in found.items()},
                )


def _tenths() -> tuple[tuple[float, float], ...]:
    return tuple((number / _BINS, (number + 1) / _BINS) for number in range(_BINS))
