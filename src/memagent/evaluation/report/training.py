"""Reads training runs: the plan from `config.toml`, the results from `metrics.jsonl` and `timing.jsonl`.

    {"step": 20, "train": {"loss": 0.96, "reward": 0.6, "reward/vt": 0.3}}
    {"step": 500, "validation": {"single_1": {"row": 0.9}, "mean": {"row": 0.8}}}
    {"step": 3, "seconds": {"rollout": 4.1, "update": 2.2}, "tokens": {"rollout": 91000}}

Whatever numbers are there become series; no name of a metric must be known. A run may be read while it is being written.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from memagent.errors import ConfigError
from memagent.evaluation.runs import check_apart

METRICS, TIMING, CONFIG = "metrics.jsonl", "timing.jsonl", "config.toml"
KEPT = "kept / groups"
RATE = "tokens/s"
_MEAN = "mean"  # the part of a validation that is the mean over all parts
_COUNTS = frozenset({"n"})  # the number of samples is not a result
_FORMER = {"silent": "no_signal"}  # names in the metrics of older runs
_NOT_FINITE = frozenset({"nan", "inf", "-inf"})  # JSON has no such numbers, so trainers write strings

Series: TypeAlias = tuple[tuple[int, float], ...]


class NoMetricsError(ConfigError):
    """A training run that has written nothing yet."""


class Metric(NamedTuple):
    """`section` is train, validation or time; `part` is a task, mixture or phase, or "" for the whole."""

    section: str
    name: str
    part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """The data of a training run so far. A series is (step, value) with increasing steps.

    `not_finite` has, for each metric that was NaN or infinite somewhere, the first such step; the series leave these out.
    `ended` is the step at which the run ended before the last one that it planned, or None.
    """

    folder: Path
    name: str
    config: str | None
    planned: int | None
    series: Mapping[Metric, Series]
    not_finite: Mapping[Metric, int]
    ended: int | None = None

    @property
    def step(self) -> int:
        return self._last(("train", "validation"))

    @property
    def finished(self) -> bool:
        """Whether the last step that `config.toml` plans is logged, and validated if the run validates at all, or the run
        has ended before it."""
        if self.ended is not None and self.ended >= self.step:
            return True
        if self.planned is None or self.step < self.planned:
            return False
        validates = any(metric.section == "validation" for metric in self.series)
        return not validates or self._last(("validation",)) >= self.planned

    def _last(self, sections: Sequence[str]) -> int:
        return max((line[-1][0] for metric, line in self.series.items() if metric.section in sections), default=0)


def is_training_run(folder: str | Path) -> bool:
    """Whether it is the folder of a training run, if only of one that has just begun."""
    folder = Path(folder)
    return not (folder / "run.json").exists() and any((folder / name).is_file() for name in (METRICS, CONFIG))


def all_training_runs(folders: Sequence[str | Path]) -> bool:
    """Whether these are training runs. Raises ConfigError if only some are."""
    kinds = [is_training_run(folder) for folder in folders]
    if any(kinds) and not all(kinds):
        one, other = folders[kinds.index(True)], folders[kinds.index(False)]
        raise ConfigError(
            f"{one} is a training run and {other} is not: report training runs and runs of memagent eval separately"
        )
    return all(kinds)


def read_training_runs(folders: Sequence[str | Path]) -> list[TrainingRun]:
    """The runs, named by their folders.

    Raises ConfigError, naming file and line, for what cannot be read; NoMetricsError if a run has written nothing yet.
    """
    paths = [Path(folder) for folder in folders]
    check_apart(paths)
    return [_read(path, name) for path, name in zip(paths, _names(paths), strict=True)]


def last_change(folders: Sequence[str | Path]) -> tuple[tuple[int, int] | None, ...]:
    """Size and time of every file that a report reads; another value means there is something new to read."""
    found: list[tuple[int, int] | None] = []
    for path in (Path(folder) / name for folder in folders for name in (METRICS, TIMING, CONFIG)):
        try:
            state = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((state.st_size, state.st_mtime_ns))
    return tuple(found)


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell all of them apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(one[-length:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _read(folder: Path, name: str) -> TrainingRun:
    collector = _Collector()
    for line in _objects(folder / METRICS, _nothing(folder)):
        collector.add_metrics(line)
    if not collector.values and not collector.not_finite:
        raise _nothing(folder)
    for line in _objects(folder / TIMING, None):
        collector.add_timing(line)
    config = _text(folder / CONFIG)
    series = {metric: tuple(sorted(points.items())) for metric, points in collector.values.items()}
    return TrainingRun(
        folder=folder,
        name=name,
        config=config,
        planned=_planned(config),
        series=series,
        not_finite=collector.not_finite,
        ended=collector.ended,
    )


def _nothing(folder: Path) -> NoMetricsError:
    what = "has no complete line yet" if (folder / METRICS).exists() else "does not exist"
    return NoMetricsError(
        f"the training run {folder} has no metrics to draw: its {METRICS} {what}."
        " Wait until it logs the first steps (`log_every` in its configuration), or use --watch"
    )


class _Collector:
    """Sorts the values of the lines into series. A step that was done again after a resume counts as it was done last."""

    def __init__(self) -> None:
        self.values: dict[Metric, dict[int, float]] = {}
        self.not_finite: dict[Metric, int] = {}
        self.ended: int | None = None

    def add_metrics(self, line: Mapping[str, Any]) -> None:
        step = line["step"]
        if "ended" in line:
            self.ended = step
        train = _mapping(line, "train")
        if train:
            train = {**train, **{name: line[name] for name in ("tokens", "lr") if name in line}}
        for key, value in train.items():
            name, _, part = _FORMER.get(key, key).partition("/")
            for inner, number in value.items() if isinstance(value, dict) else [(part, value)]:
                self._put(step, Metric("train", name, inner), number)
        groups, kept = _number(train.get("groups")), _number(train.get("kept"))
        if groups and kept is not None:
            self._put(step, Metric("train", KEPT), kept / groups)
        for part, values in _mapping(line, "validation").items():
            if not isinstance(values, dict):
                self._put(step, Metric("validation", part), values)
                continue
            for name, value in values.items():
                if name not in _COUNTS:
                    self._put(step, Metric("validation", name, "" if part == _MEAN else part), value)

    def add_timing(self, line: Mapping[str, Any]) -> None:
        step, seconds, tokens = line["step"], _phases(line, "seconds"), _phases(line, "tokens")
        for phase, value in seconds.items():
            taken, count = _number(value), _number(tokens.get(phase))
            if not taken:  # this step did not have this phase
                continue
            self._put(step, Metric("time", "seconds", phase), taken)
            if count is not None:
                self._put(step, Metric("time", RATE, phase), count / taken)

    def _put(self, step: int, metric: Metric, value: Any) -> None:
        number = _number(value)
        if number is None:
            return
        if math.isfinite(number):
            self.values.setdefault(metric, {})[step] = number
        else:
            self.not_finite.setdefault(metric, step)


def _number(value: Any) -> float | None:
    if isinstance(value, str) and value in _NOT_FINITE:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _mapping(line: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = line.get(name)
    return value if isinstance(value, dict) else {}


def _phases(line: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Values by phase; a lone number is that of the whole step."""
    value = line.get(name)
    return value if isinstance(value, dict) else {"": value}


def _objects(path: Path, missing: ConfigError | None) -> Iterator[dict[str, Any]]:
    """The lines of a file that may be in use: an incomplete last line is ignored.

    A file that is not there raises `missing`, or is empty if that is None.
    """
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        if missing is not None:
            raise missing from None
        return
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines) and not line.endswith(b"\n"):
                return
            raise ConfigError(
                f"{path}, line {number}: not a line of JSON ({error}): remove the line, or restore the file"
            ) from error
        step = value.get("step") if isinstance(value, dict) else None
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise ConfigError(f'{path}, line {number}: expected an object with a whole number "step" of at least 0')
        yield value


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def _planned(config: str | None) -> int | None:
    """How many steps the configuration asks for: `steps`, or that of [schedule]."""
    try:
        values = tomllib.loads(config or "")
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    steps = _mapping(values, "schedule").get("steps", values.get("steps"))
    return steps if isinstance(steps, int) and not isinstance(steps, bool) else None
