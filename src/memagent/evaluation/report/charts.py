"""Charts as SVG for a page: text stays text, colours of axes follow the page, the same data give the same bytes."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib import rc_context
from matplotlib.figure import Figure

from memagent.evaluation.report.numbers import number, short
from memagent.evaluation.statistics import Line
from memagent.evaluation.summary import Cell, Summary

# Distinguishable in black and white by marker and dash, and for colour-blind readers by lightness (after Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7f7f7f")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1, 2)), "-", (0, (5, 2)), (0, (1.5, 1.5)))
_INK = "#010203"  # placeholder for the text colour of the page
_SIZE = (4.4, 2.7)
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 9,
    "text.parse_math": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6},
    **{"grid.color": _INK, "grid.alpha": 0.15, "grid.linewidth": 0.6},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`svg` is markup of ours, in which all text from outside is escaped. `summary` says what is to be seen."""

    title: str
    svg: str
    summary: str


def accuracy_charts(summary: Summary) -> list[Chart]:
    """Accuracy against length, a chart for each task and, where there are several, one of their mean."""
    charts = []
    if len(summary.tasks) > 1 and summary.means:
        lengths = [length for length in summary.lengths if summary.compared[length]]
        charts.append(_chart("Mean over tasks", "accuracy-mean", lambda axes: _draw_means(axes, summary), summary, lengths))
    for order, task in enumerate(summary.tasks):

        def draw(axes: Any, task: str = task) -> None:
            for place, one in enumerate(summary.systems):
                _draw_accuracy(
                    axes, [c for length in summary.lengths if (c := summary.cells.get((task, length, one)))], place
                )

        charts.append(_chart(task, f"accuracy-{order}", draw, summary, summary.lengths_of(task)))
    return charts


def cost_charts(summary: Summary) -> list[Chart]:
    """Seconds, and tokens through the model, against length: means of each length, and the fitted lines."""

    def tokens_of(cell: Cell) -> float | None:
        if cell.prompt_tokens is None or cell.completion_tokens is None:
            return None
        return cell.prompt_tokens + cell.completion_tokens

    kinds: tuple[tuple[str, Callable[[Cell], float | None], Callable[[str], Line | None]], ...] = (
        ("Seconds a reading", lambda cell: cell.seconds, lambda one: summary.growth[one].seconds),
        ("Tokens a reading, in and out", tokens_of, lambda one: summary.growth[one].tokens),
    )
    charts = []
    for title, value, line in kinds:

        def draw(
            axes: Any, value: Callable[[Cell], float | None] = value, line: Callable[[str], Line | None] = line
        ) -> None:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: number(value))
            for place, one in enumerate(summary.systems):
                _draw_costs(axes, summary, one, place, value, line(one))

        charts.append(_chart(title, f"cost-{title}", draw, summary, summary.lengths, shares=False))
    return charts


def key(place: int) -> str:
    """A small picture of a system's line, for a legend."""

    def draw(axes: Any) -> None:
        axes.set_position((0, 0, 1, 1))
        axes.set_axis_off()
        style = line_style(place)
        axes.plot([0, 2], [0, 0], **{**style, "marker": ""})
        axes.plot([1], [0], **style)

    return draw_svg(draw, "key", (0.5, 0.16), layout=None)


def _chart(
    title: str, name: str, draw: Callable[[Any], None], summary: Summary, lengths: Sequence[int], *, shares: bool = True
) -> Chart:
    known = [length for length in lengths if length]
    names = [short(length, length in summary.ranges) for length in known]

    def dress(axes: Any) -> None:
        draw(axes)
        axes.set_xscale("log", base=2)
        axes.set_xticks(known, _tick_labels(known, names))
        axes.minorticks_off()
        axes.set_xlabel("tokens in the document")
        axes.grid(True, axis="y")
        if shares:
            axes.set_ylim(-4, 104)
            axes.set_yticks(range(0, 101, 25))
            axes.set_ylabel("accuracy, %")
        if len(known) == 1:
            axes.set_xlim(known[0] / 2, known[0] * 2)

    values = "from " + (f"{names[0]} to {names[-1]} tokens" if known else "documents of unknown length")
    return Chart(title=title, svg=draw_svg(dress, name, _SIZE), summary=f"{title}, {values}; the numbers are in the table")


def _tick_labels(lengths: Sequence[int], names: Sequence[str]) -> list[str]:
    """The labels of the ticks of a logarithmic axis; a tick too near to the next has none."""
    near = 0.09 * math.log(lengths[-1] / lengths[0]) if lengths else 0.0
    labels: list[str] = []
    last = math.inf
    for length, name in zip(reversed(lengths), reversed(names), strict=True):
        fits = last - math.log(length) > near or last == math.inf
        labels.append(name if fits else "")
        last = math.log(length) if fits else last
    return labels[::-1]


def _draw_accuracy(axes: Any, cells: Sequence[Cell], place: int) -> None:
    cells = [cell for cell in cells if cell.length]
    lengths = [cell.length for cell in cells]
    band = [100 * cell.interval.low for cell in cells], [100 * cell.interval.high for cell in cells]
    axes.fill_between(lengths, *band, color=COLOURS[place % len(COLOURS)], alpha=0.13, linewidth=0)
    if len(cells) == 1:
        axes.vlines(lengths, *band, color=COLOURS[place % len(COLOURS)], linewidth=1)
    axes.plot(lengths, [100 * cell.mean for cell in cells], **line_style(place))
    unfit = [cell.length for cell in cells if cell.too_long]
    axes.plot(unfit, [0] * len(unfit), "x", color=COLOURS[place % len(COLOURS)], markersize=7)


def _draw_means(axes: Any, summary: Summary) -> None:
    for place, one in enumerate(summary.systems):
        for points in mean_lines(summary, one):
            axes.plot([x for x, _ in points], [y for _, y in points], **line_style(place))


def mean_lines(summary: Summary, one: str) -> list[list[tuple[int, float]]]:
    """Points (length, mean in per cent) of a system; a new line begins where the mean is over other tasks."""
    lines: list[list[tuple[int, float]]] = []
    last: tuple[str, ...] | None = None
    for length in summary.lengths:
        if length and (length, one) in summary.means:
            if summary.compared[length] != last:
                lines.append([])
            last = summary.compared[length]
            lines[-1].append((length, 100 * summary.means[length, one][0]))
    return lines


def _draw_costs(
    axes: Any, summary: Summary, one: str, place: int, value: Callable[[Cell], float | None], line: Line | None
) -> None:
    """Points are at the mean length of the documents: of a range that is not its end."""
    points = []
    for length in summary.lengths:
        cells = [cell for cell in summary.cells.values() if (cell.length, cell.system) == (length, one)]
        known = [(cell.document, cost) for cell in cells if (cost := value(cell)) and cell.document]
        if length and known:
            points.append((sum(x for x, _ in known) / len(known), sum(y for _, y in known) / len(known)))
    style = line_style(place)
    axes.plot([x for x, _ in points], [y for _, y in points], **{**style, "linestyle": "none"})
    if line is not None and points:
        lengths = [points[0][0] * (points[-1][0] / points[0][0]) ** (step / 40) for step in range(41)]
        fitted = [(x, y) for x in lengths if (y := line.intercept + line.slope * x) > 0]
        axes.plot([x for x, _ in fitted], [y for _, y in fitted], **{**style, "marker": "", "linewidth": 1})


def line_style(place: int) -> dict[str, Any]:
    which = place % len(COLOURS)
    return {
        "color": COLOURS[which],
        "marker": _MARKERS[which],
        "linestyle": _DASHES[which],
        "markersize": 4,
        "linewidth": 1.4,
        "clip_on": False,
    }


def draw_svg(
    draw: Callable[[Any], None],
    name: str,
    size: tuple[float, float],
    layout: Literal["constrained"] | None = "constrained",
) -> str:
    """The markup without fixed size, generated ids, ink colours or dates."""
    with rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=size, layout=layout)
        draw(figure.add_subplot())
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\n?", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', "", svg, count=1)
    return svg.replace(_INK, "currentColor").strip()
