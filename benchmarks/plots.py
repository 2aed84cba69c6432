"""What the figures of docs/results are drawn with: committed data, one style, bars and lines with their intervals."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, TypeAlias

from matplotlib.figure import Figure

from benchmarks.at_length import Scores
from benchmarks.curves import train
from memagent.evaluation.statistics import wilson

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "experiments"
WINDOW, LONGEST = 1024, 447_488
Points: TypeAlias = list[tuple[float, float, int]]  # x, sum of the scores, number of readings
BLUE, ORANGE, GREEN, PINK, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7f7f7f"  # after Okabe and Ito
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "memagent",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "errorbar.capsize": 2,
    "figure.constrained_layout.use": True,
}


def table(name: str) -> list[dict[str, str]]:
    with (DATA / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def scores(name: str) -> dict[str, Scores]:
    found: dict[str, Scores] = json.loads((DATA / "scores" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def batches(name: str, quantity: str) -> dict[int, float]:
    """What a run logged of a quantity, batch by batch."""
    return {batch: values[quantity] for batch, values in train(DATA / "runs" / name).items() if quantity in values}


def in_fives(values: dict[int, float]) -> tuple[list[float], list[float]]:
    """Means over five batches each, and their middles."""
    steps = sorted(values)
    groups = [steps[first : first + 5] for first in range(0, len(steps), 5)]
    return [mean(group) for group in groups], [100 * mean(values[step] for step in group) for group in groups]


def panels(count: int, height: float = 3.3) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=(9.0 if count > 1 else 6.0, height))
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def windows_axis(axes: Any, lengths: list[int], window: int = WINDOW) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [f"{length}" for length in lengths])
    axes.minorticks_off()
    axes.set_xlabel(f"length of the document, in windows of {window:,} tokens")


def spread(points: Points) -> tuple[list[float], list[float], list[list[float]]]:
    """Places, per cent, and how far their Wilson intervals reach below and above."""
    bounds = [wilson(total, n) for _, total, n in points]
    centre = [100 * total / n for _, total, n in points]
    below = [middle - 100 * bound.low for middle, bound in zip(centre, bounds, strict=True)]
    above = [100 * bound.high - middle for middle, bound in zip(centre, bounds, strict=True)]
    return [x for x, _, _ in points], centre, [below, above]


def line(axes: Any, points: Points, label: str, colour: str, style: str = "o-") -> None:
    """Accuracies with their Wilson intervals."""
    places, centre, around = spread(points)
    axes.errorbar(places, centre, yerr=around, fmt=style, label=label, color=colour, markersize=4, lw=1.4)


def share_bars(
    axes: Any, counted: Sequence[tuple[float, int]], shift: float, label: str, colour: str, width: float = 0.36
) -> None:
    """The right ones among so many, moved by `shift`, with their Wilson intervals."""
    places, share, around = spread([(place + shift, right, n) for place, (right, n) in enumerate(counted)])
    axes.bar(places, share, width=width, yerr=around, color=colour, label=label, error_kw={"lw": 0.8})
