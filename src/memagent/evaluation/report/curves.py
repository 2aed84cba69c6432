"""Charts and tables of training runs: a chart for every metric, a line for every run or part.

One run: the parts of a metric (tasks, mixtures, phases) are lines of one chart. Several runs: the lines are the runs, and
every part has a chart of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy
from matplotlib.ticker import FuncFormatter, MaxNLocator, ScalarFormatter

from memagent.evaluation.report.charts import COLOURS, draw_svg, key, line_style
from memagent.evaluation.report.numbers import number
from memagent.evaluation.report.tables import MARK, escaped, table_lines
from memagent.evaluation.report.training import KEPT, Metric, Series, TrainingRun

SMOOTHED = 30  # a line with more points is drawn as its moving average, and its points as a thin line
WINDOW = 11  # points of the average
_DRAWN = 300  # the maximum number of bins of a line; each bin draws its lowest and highest point
_SIZE = (4.4, 2.3)
# The order of charts; others follow in the order of the files.
_FIRST = ("reward", "score", "accuracy", "row", "loss", KEPT, "retention", "memory_tokens", "kl", "entropy", "grad_norm")
_SHARES = frozenset({"reward", "score", "accuracy", "row"})  # drawn from 0 to 1
_HIGHER, _LOWER = frozenset({*_SHARES, "retention"}), frozenset({"loss"})
_TICKS = (1, 2, 2.5, 5, 10)
_THIN = 3  # with more lines, the thin lines would hide the others
_SECTIONS = (("validation", "Validation"), ("train", "Training"), ("time", "Time"))

Drawn: TypeAlias = tuple[int, Series]  # a line and the place of its colour


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveChart:
    """`svg` and the pictures of `legend` are markup of ours; titles and names are from outside."""

    title: str
    svg: str
    summary: str
    legend: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of charts. A group without a title comes first; a `folded` group is collapsed."""

    title: str
    charts: Sequence[CurveChart]
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    id: str
    title: str
    groups: Sequence[Group]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The last and the best value of a metric, with their steps."""

    last: float
    last_step: int
    best: float
    best_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A metric in the table: a cell for each run, None where a run does not have it."""

    section: str
    metric: str
    cells: Sequence[Cell | None]


def sections(runs: Sequence[TrainingRun]) -> list[Section]:
    """Every metric of the runs, drawn."""
    found = []
    for id, title in _SECTIONS:
        names = _names(runs, id)
        if names:
            draw = _one_run if len(runs) == 1 else _several_runs
            found.append(Section(id=id, title=title, groups=draw(runs, id, names)))
    return found


def main_values(runs: Sequence[TrainingRun]) -> list[Row]:
    """The metrics with a known direction of improvement; of parts, only those of the first in validation.

    The loss of reinforcement learning is not among them: that it is low says nothing.
    """
    rows = []
    rewarded = Metric("train", "reward") in {metric for run in runs for metric in run.series}
    for section, title in _SECTIONS[:2]:
        known = [name for name in _names(runs, section) if name in (_HIGHER if rewarded else _HIGHER | _LOWER)]
        for place, name in enumerate(known):
            parts = ["", *(_parts(runs, section) if section == "validation" and place == 0 else ())]
            for part in parts:
                cells = [_cell(run.series.get(Metric(section, name, part)), name in _LOWER) for run in runs]
                if any(cells):
                    rows.append(Row(section=title, metric=f"{name} · {part}" if part else name, cells=cells))
    return rows


def markdown(runs: Sequence[TrainingRun], title: str) -> str:
    """The table of main values as a page of Markdown."""
    heads = ("", *(escaped(run.name) for run in runs))
    rows = [["step", *(progress(run) for run in runs)]]
    for row in main_values(runs):
        cells = [
            f"{number(cell.last)} (best {number(cell.best)} at {cell.best_step:,})" if cell else "" for cell in row.cells
        ]
        rows.append([escaped(f"{row.section.lower()}: {row.metric}"), *cells])
    return "\n".join([MARK, "", f"# {escaped(title)}", "", *table_lines(heads, rows)]).rstrip() + "\n"


def progress(run: TrainingRun) -> str:
    """How far a run is: "140 of 5,000"."""
    return f"{run.step:,} of {run.planned:,}" if run.planned else f"{run.step:,}"


def smoothed(line: Series) -> Series:
    """The centred moving mean of a line of many points; at its ends, the mean of what there is. A short line as it is."""
    if len(line) <= SMOOTHED:
        return line
    values, window = numpy.array([value for _, value in line]), numpy.ones(WINDOW)
    means = numpy.convolve(values, window, "same") / numpy.convolve(numpy.ones(len(line)), window, "same")
    return tuple((step, float(mean)) for (step, _), mean in zip(line, means, strict=True))


def thinned(line: Series) -> Series:
    """What of a line is worth drawing: of each of many bins, the lowest and the highest point."""
    if len(line) <= 2 * _DRAWN:
        return line
    kept = {line[0], line[-1]}
    for bin in range(_DRAWN):
        points = line[bin * len(line) // _DRAWN : (bin + 1) * len(line) // _DRAWN]
        kept |= {min(points, key=lambda point: point[1]), max(points, key=lambda point: point[1])}
    return tuple(sorted(kept))


def _one_run(runs: Sequence[TrainingRun], section: str, names: Sequence[str]) -> list[Group]:
    """A chart of each metric as a whole, then its parts, as many in a chart as there are colours."""
    series, charts = runs[0].series, []
    bundles = _bundles(_parts(runs, section))
    for name in names:
        whole = series.get(Metric(section, name))
        if whole:
            charts.append(_chart(Metric(section, name), name, runs, [(0, whole)]))
        drawn = [[part for part in bundle if Metric(section, name, part) in series] for bundle in bundles]
        for place, (bundle, parts) in enumerate(zip(bundles, drawn, strict=True), 1):
            if parts:
                several = f" ({place} of {len(bundles)})" if sum(map(bool, drawn)) > 1 else ""
                lines = [(bundle.index(part), series[Metric(section, name, part)]) for part in parts]
                legend = [(key(which), part) for (which, _), part in zip(lines, parts, strict=True)]
                charts.append(_chart(Metric(section, name), f"{name} by part{several}", runs, lines, legend))
    return [Group(title="", charts=charts)]


def _several_runs(runs: Sequence[TrainingRun], section: str, names: Sequence[str]) -> list[Group]:
    """The metrics as a whole, then each metric part by part; all but the first of these are folded."""

    def chart(name: str, part: str) -> CurveChart | None:
        metric = Metric(section, name, part)
        lines = [(place, run.series[metric]) for place, run in enumerate(runs) if metric in run.series]
        return _chart(metric, f"{name} · {part}" if part else name, runs, lines) if lines else None

    wholes = [found for name in names if (found := chart(name, ""))]
    groups = [Group(title="", charts=wholes)] if wholes else []
    first = True
    for name in names:
        charts = [found for part in _parts(runs, section) if (found := chart(name, part))]
        if charts:
            groups.append(Group(title=f"{name} by part", charts=charts, folded=not first and section != "time"))
            first = False
    return groups


def _names(runs: Sequence[TrainingRun], section: str) -> list[str]:
    """The metrics of a section, the ones that matter most first."""
    found = dict.fromkeys(metric.name for run in runs for metric in run.series if metric.section == section)
    return sorted(found, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))


def _parts(runs: Sequence[TrainingRun], section: str) -> list[str]:
    found = dict.fromkeys(metric.part for run in runs for metric in run.series if metric.section == section)
    return [part for part in found if part]


def _bundles(parts: Sequence[str]) -> list[Sequence[str]]:
    """The parts in bundles of about the same size, none larger than there are colours."""
    count = math.ceil(len(parts) / len(COLOURS))
    return [parts[place * len(parts) // count : (place + 1) * len(parts) // count] for place in range(count)]


def _cell(line: Series | None, lower: bool) -> Cell | None:
    if not line:
        return None
    line = smoothed(line)
    best = (min if lower else max)(line, key=lambda point: point[1])
    return Cell(last=line[-1][1], last_step=line[-1][0], best=best[1], best_step=best[0])


def _chart(
    metric: Metric, title: str, runs: Sequence[TrainingRun], lines: Sequence[Drawn], legend: Sequence[tuple[str, str]] = ()
) -> CurveChart:
    """A chart of lines, each with the place of its colour. All charts have the steps of all runs."""
    values = [value for _, line in lines for _, value in line]
    end = max(line[-1][0] for run in runs for line in run.series.values())

    def draw(axes: Any) -> None:
        for place, line in lines:
            _draw_line(axes, place, line, thin=len(lines) <= _THIN)
        if metric.name in _SHARES and min(values) >= 0 and max(values) <= 1:
            axes.set_ylim(-0.03, 1.03)
            axes.set_yticks((0, 0.25, 0.5, 0.75, 1))
        elif "loss" in metric.name and min(values) > 0 and max(values) / min(values) > 50:
            axes.set_yscale("log")
            axes.set_ylim(*(math.exp(limit) for limit in _limits(lines, math.log)))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
            axes.minorticks_off()
        else:
            axes.set_ylim(*_limits(lines))
            axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=_TICKS))
            axes.yaxis.set_major_formatter(_formatter(values))
        axes.set_xlim(0, 1.02 * max(1, end))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=_TICKS, integer=True))
        axes.xaxis.set_major_formatter(_formatter([end]))
        axes.set_xlabel("step")
        axes.grid(True, axis="y")

    last = "; ".join(number(line[-1][1]) for _, line in lines)
    svg = draw_svg(draw, f"{metric.section}-{title}", _SIZE)
    return CurveChart(title=title, svg=svg, summary=f"{title} against the step; last: {last}", legend=legend)


def _draw_line(axes: Any, place: int, line: Series, *, thin: bool) -> None:
    bold = thinned(smoothed(line))
    if len(line) > SMOOTHED and thin:
        axes.plot(*zip(*thinned(line), strict=True), color=COLOURS[place % len(COLOURS)], alpha=0.3, linewidth=0.6)
    style = {**line_style(place), "linewidth": 1.7, "markersize": 3.5, "markevery": max(1, len(bold) // 8)}
    axes.plot(*zip(*bold, strict=True), **style)


def _limits(lines: Iterable[Drawn], scale: Callable[[float], float] = float) -> tuple[float, float]:
    """All of the bold lines, and of the thin ones all but their rarest values, so that one spike does not flatten all."""
    values: list[float] = []
    for _, line in lines:
        values += [value for _, value in smoothed(line)]
        values += numpy.percentile([value for _, value in line], (0.5, 99.5)).tolist()
    low, high = scale(min(values)), scale(max(values))
    edge = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - edge, high + edge


def _formatter(values: Iterable[float]) -> Any:
    """Ticks of large numbers are written with k and M; the others with as many digits as tell them apart."""
    if max(map(abs, values)) < 10_000:
        return ScalarFormatter(useOffset=False)
    return FuncFormatter(lambda value, _: _short(value))


def _short(value: float) -> str:
    size = abs(value)
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{value / unit:.4g}{name}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")
