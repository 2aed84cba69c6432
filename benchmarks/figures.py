"""Draws the figures of docs/results from the data in experiments/.

    python -m benchmarks.figures [FOLDER]

FOLDER is docs/results/figures unless another is named. The same data give the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from benchmarks.at_length import Scores, gains, interval, of
from benchmarks.figures_of_questions import chains_in_rounds, false_finds, gates, names_and_wordings, natural_questions
from benchmarks.plots import (
    BLUE,
    GREEN,
    GREY,
    LONGEST,
    ORANGE,
    PINK,
    ROOT,
    STYLE,
    WINDOW,
    Points,
    batches,
    in_fives,
    line,
    panels,
    scores,
    share_bars,
    table,
    windows_axis,
)

NINE = "niah_single_1 niah_single_2 niah_single_3 niah_multikey_1 niah_multikey_2 niah_multikey_3 niah_multivalue".split()
NINE += ["niah_multiquery", "vt"]
RETENTION, RETENTION_SEEDS = ["niah_single_2", "niah_multiquery", "updates"], (30, 31, 32)


def accuracies(way: Scores, tasks: list[str], window: int = WINDOW) -> Points:
    lengths = [tokens for tokens in sorted(way, key=int) if int(tokens) <= LONGEST]
    read = [(int(tokens) / window, list(of(way, tokens, tasks).values())) for tokens in lengths]
    return [(windows, sum(values), len(values)) for windows, values in read if values]


def together(parts: list[Points]) -> Points:
    """The mean of several models that read the same samples, whose number is that of one of them."""
    return [(here[0][0], mean(total for _, total, _ in here), here[0][2]) for here in zip(*parts, strict=True)]


def of_reader(reader: str) -> Points:
    """The accuracy of a reader over the nine tasks, at the lengths at which all nine were read."""
    rows = [row for row in table("readers") if row["reader"] == reader and row["task"] in NINE]
    lengths = sorted({int(row["tokens"]) for row in rows})
    cells = [(tokens, [row for row in rows if int(row["tokens"]) == tokens]) for tokens in lengths]
    return [
        (
            tokens / WINDOW,
            sum(float(row["accuracy"]) * int(row["n"]) for row in here),
            sum(int(row["n"]) for row in here),
        )
        for tokens, here in cells
        if len(here) == len(NINE)
    ]


def extrapolation() -> Figure:
    figure, (left, right) = panels(2)
    memory = scores("greedy")["after RL"]
    looks = {"retrieve": (ORANGE, "s-"), "append": (GREEN, "^-"), "truncate": (PINK, "D-"), "direct": (GREY, "X-")}
    line(left, accuracies(memory, NINE), "memory", BLUE)
    for reader, (colour, style) in looks.items():
        points = of_reader(reader)
        if points:
            line(left, points, reader, colour, style)
    left.set(title="Mean of nine tasks, by reader", ylabel="accuracy, %", ylim=(-3, 103))
    hard = {"vt": ORANGE, "niah_multivalue": GREEN, "niah_multikey_2": PINK, "niah_multikey_3": GREY}
    easy = [task for task in NINE if task not in hard]
    for place, task in enumerate(easy):
        points = accuracies(memory, [task])
        label = "the five others" if not place else None
        right.plot(
            [x for x, _, _ in points], [100 * total / n for _, total, n in points], color=BLUE, lw=1, alpha=0.6, label=label
        )
    for (task, colour), style in zip(hard.items(), ("s-", "^-", "D-", "X-"), strict=True):
        line(right, accuracies(memory, [task]), task, colour, style)
    right.set(title="The memory reader, by task", ylim=(65, 101))
    for axes, corner in ((left, "center right"), (right, "lower left")):
        windows_axis(axes, [1, 4, 16, 64, 437])
        axes.legend(loc=corner)
    return figure


def readers() -> Figure:
    figure = Figure(figsize=(9.0, 6.4))
    (single, chains), (right, learnt) = figure.subplots(2, 2)
    looks = {
        "memory": (BLUE, "o-"),
        "gated": (ORANGE, "s-"),
        "parallel": (GREEN, "^-"),
        "parallel, focus": (GREEN, "^:"),
        "search": (PINK, "D-"),
    }
    rows = table("every-reader")
    for axes, tasks, title in (
        (single, ("niah_single_2", "niah_multikey_2", "vt"), "Single facts, and assignments"),
        (chains, ("multihop",), "Chains of two facts"),
    ):
        lengths = sorted({int(row["tokens"]) for row in rows if row["task"] in tasks and int(row["tokens"]) < LONGEST})
        for place, (reader, (colour, style)) in enumerate(looks.items()):
            points: Points = []
            for tokens in lengths:
                here = [
                    row for row in rows if (row["reader"], int(row["tokens"])) == (reader, tokens) and row["task"] in tasks
                ]
                total = sum(float(row["accuracy"]) * int(row["n"]) for row in here)
                if here:
                    points.append((tokens / WINDOW * 1.03 ** (place - 2), total, sum(int(row["n"]) for row in here)))
            line(axes, points, reader, colour, style)
        axes.set(title=title, ylabel="accuracy, %", ylim=(0, 103))
        windows_axis(axes, [tokens // WINDOW for tokens in lengths])
        axes.set_xlabel("document, in windows")
        axes.legend(loc="lower left")
    timed = table("every-reader-seconds")
    places = list(dict.fromkeys(row["where"] for row in timed))
    for shift, (reader, (colour, _)) in enumerate(looks.items()):
        took = {row["where"]: float(row["seconds"]) for row in timed if row["reader"] == reader}
        base = {row["where"]: float(row["seconds"]) for row in timed if row["reader"] == "memory"}
        ratios = [base[where] / took[where] for where in places]
        shifted = [place + 0.17 * (shift - 2) for place in range(len(places))]
        bars = right.bar(shifted, ratios, width=0.15, color=colour, hatch="//" if reader == "parallel, focus" else None)
        right.bar_label(bars, [f"{ratio:.1f}" for ratio in ratios], fontsize=7)
    right.set_xticks(range(len(places)), places)
    right.set(title="Speed at 64 windows", ylabel="memory = 1", yscale="log")
    steps, shares = in_fives(batches("gating", "skipped"))
    learnt.plot(steps, shares, "o-", color=ORANGE, label="turns skipped")
    learnt.set(title="RL of a gate", xlabel="batch", ylabel="% of sampled turns", ylim=(0, 40))
    learnt.legend(loc="upper left")
    return figure


def reinforcement_learning() -> Figure:
    figure, (left, right) = panels(2)
    for name, file, style, colour in (
        ("greedy", "greedy", "o-", BLUE),
        ("sampled at temperature 1", "sampled", "s-", ORANGE),
    ):
        ways = scores(file)
        line(left, accuracies(ways["warm start"], NINE), f"{name}, warm start", colour, style.replace("-", "--"))
        line(left, accuracies(ways["after RL"], NINE), f"{name}, after RL", colour, style)
        lengths = [tokens for tokens in sorted(ways["warm start"], key=int) if tokens in ways["after RL"]]
        paired = [gains(ways["after RL"], ways["warm start"], tokens, NINE) for tokens in lengths]
        right.errorbar(
            [int(tokens) / WINDOW for tokens in lengths],
            [mean(values) for values in paired],
            yerr=[interval(values) for values in paired],
            fmt=style,
            color=colour,
            label=name,
            markersize=4,
        )
    right.axhline(0, color="black", lw=0.8)
    left.set(title="Accuracy", ylabel="mean of nine tasks, %", ylim=(20, 102))
    right.set(title="Gain of the same readings, after RL", ylabel="points")
    for axes in (left, right):
        windows_axis(axes, [1, 4, 16, 64, 437])
        axes.legend(loc="lower left" if axes is left else "upper left")
    return figure


def by_credit(axes: Any, quantity: str) -> None:
    """What three runs with each kind of credit logged: their mean, and their range."""
    for label, credit, colour in (("every turn", "all", BLUE), ("the answer only", "final", ORANGE)):
        runs = [batches(f"retention-{credit}-{seed}", quantity) for seed in RETENTION_SEEDS]
        steps = sorted(set.intersection(*(set(run) for run in runs)))
        values = [[100 * run[step] for run in runs] for step in steps]
        axes.plot(steps, [mean(here) for here in values], color=colour, label=f"credit to {label}")
        axes.fill_between(
            steps, [min(here) for here in values], [max(here) for here in values], color=colour, alpha=0.2, lw=0
        )
    axes.set(xlabel="batch", ylim=(0, 102))
    axes.legend(loc="lower right", fontsize=8)


def retention() -> Figure:
    """A memory that loses what it noted learns to keep it, by the reward of the answer alone."""
    figure, (left, middle, right) = panels(3)
    by_credit(left, "reward")
    by_credit(middle, "retention")
    ways = scores("retention")
    for drawn, colour, style in (("greedy", BLUE, "o-"), ("sampled", GREEN, "s-")):
        before = accuracies(ways[f"start, {drawn}"], RETENTION, 128)
        after = together([accuracies(ways[f"RL {seed}, {drawn}"], RETENTION, 128) for seed in RETENTION_SEEDS])
        line(right, before, f"{drawn}, before", colour, style.replace("-", "--"))
        line(right, after, f"{drawn}, after", colour, style)
    left.set(title="Right answers while training", ylabel="readings of 3 to 4 windows, %")
    middle.set(title="Values kept by an update")
    right.set(title="Right answers afterwards", ylim=(0, 102))
    windows_axis(right, [1, 4, 16, 64, 437], 128)
    right.set_xlabel("windows of 128 tokens")
    right.legend(loc=(0.42, 0.22), fontsize=8)
    return figure


def credit_assignment() -> Figure:
    figure, (left, right) = panels(2)
    by_credit(left, "reward")
    untouched = batches("credit-none", "reward")
    for place, (run, colour) in enumerate((("credit-all", BLUE), ("credit-answer", ORANGE))):
        rewards = {batch: value for batch, value in batches(run, "reward").items() if batch in untouched}
        gained = [100 * (rewards[batch] - untouched[batch]) for batch in rewards if batch > 1]
        right.scatter(
            [place + (n / len(gained) - 0.5) / 3 for n in range(len(gained))], gained, s=8, color=colour, alpha=0.35
        )
        right.errorbar([place], [mean(gained)], yerr=[interval(gained)], fmt="D", color=colour, markersize=6)
    right.axhline(0, color="black", lw=0.8)
    right.set_xticks([0, 1], ["credit to every turn", "credit to the answer only"])
    right.set(title="A start that keeps well: difference from it", ylabel="points of reward", xlim=(-0.6, 1.6))
    left.set(title="A start that forgets, three seeds", ylabel="reward, %")
    return figure


def memory_and_hops() -> Figure:
    figure, (axes,) = panels(1)
    for hops, colour, style in zip("1234", (BLUE, ORANGE, GREEN, PINK), ("o-", "s-", "^-", "D-"), strict=True):
        rows = [row for row in table("memory-and-hops") if row["hops"] == hops]
        points = [(float(row["memory_tokens"]), float(row["right"]), int(row["readings"])) for row in rows]
        line(axes, points, f"{hops} hop{'s' * (hops != '1')}", colour, style)
    axes.set_xticks([32, 64, 128, 192])
    axes.set(xlabel="memory budget, tokens", ylabel="accuracy, %", ylim=(-1, 42))
    axes.legend(ncols=4, loc="upper center")
    return figure


def speed_and_memory() -> Figure:
    figure, (left, right) = panels(2)
    rows = table("ask")
    tokens, seconds = ([float(row[name]) for row in rows] for name in ("tokens", "seconds"))
    left.loglog(tokens, seconds, "o-", color=BLUE)
    for row, x, y in zip(rows, tokens, seconds, strict=True):
        left.annotate(f"{row['seconds']} s, peak {row['peak_mb']} MB", (x, y), xytext=(6, -11), textcoords="offset points")
    left.set(
        title="memagent ask, one question",
        xlabel="tokens of the document",
        ylabel="seconds",
        xlim=(6e3, 2e8),
        ylim=(0.5, 3000),
    )
    parts = table("speedups")[::-1]
    names = [f"{row['part']}\n{row['case']}" for row in parts]
    ratios = [float(row["ratio"]) for row in parts]
    bars = right.barh(names, ratios, color=BLUE, height=0.6)
    right.bar_label(bars, [f"{ratio} ×" for ratio in ratios], padding=3)
    right.axvline(1, color="black", lw=0.8)
    right.tick_params(axis="y", labelsize=7)
    right.set(title="Speed over plain code", xlim=(0, 4.2), xlabel="times as fast")
    return figure


def speed_on_servers() -> Figure:
    """The arms of `benchmarks.vllm` against those that they take turns with."""
    figure, (axes,) = panels(1)
    names = {
        "ngram": "n-gram speculation",
        "suffix": "suffix decoding",
        "chunk-first": "chunk-first",
        "memagent": "memagent, against a bare loop",
    }
    rows = [row for row in table("vllm") if row["arm"] in names][::-1]
    labels = [
        f"{names[row['arm']]}, {row['questions']} at once" + (", a tenth replaced" if float(row["changed"]) else "")
        for row in rows
    ]
    ratios = [float(row["against"]) for row in rows]
    bars = axes.barh(labels, ratios, color=BLUE, height=0.6)
    axes.bar_label(bars, [f"{ratio:.2f} ×" for ratio in ratios], padding=3)
    axes.axvline(1, color="black", lw=0.8)
    axes.tick_params(axis="y", labelsize=7)
    axes.set(title="vLLM, the model on one core", xlim=(0, 2.3), xlabel="times as fast")
    return figure


def chunk_first() -> Figure:
    """Right answers of two models that differ in what a prompt shows first."""
    rows = table("order")
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    lengths = list(dict.fromkeys(row["windows"] for row in rows))
    figure, axes = panels(len(lengths))
    for one, windows in zip(axes, lengths, strict=True):
        for shift, first, colour in ((-0.2, "question", BLUE), (0.2, "text", ORANGE)):
            cells = [row for row in rows if (row["first"], row["windows"]) == (first, windows)]
            share_bars(one, [(float(row["right"]), int(row["n"])) for row in cells], shift, f"the {first} first", colour)
        one.set_xticks(range(len(tasks)), [task.replace(" of ", " of\n") for task in tasks])
        one.set(title=f"{windows} windows", ylabel="% right", ylim=(0, 118), yticks=range(0, 101, 20))
    axes[0].legend(loc="upper left", fontsize=8, ncols=2)
    return figure


def general_model() -> Figure:
    """Right answers of a published model before and after it was trained."""
    rows = table("general")
    figure, (axes,) = panels(1)
    found = list(dict.fromkeys(row["score"] for row in rows))
    for shift, model, colour in ((-0.2, "as published", GREY), (0.2, "after 50 steps", BLUE)):
        counted = [(float(row["right"]), int(row["n"])) for row in rows if row["model"] == model]
        share_bars(axes, counted, shift, model, colour)
    axes.set_xticks(range(len(found)), [one.replace(" among ", "\namong ") for one in found])
    axes.set(title="One fact in four windows", ylabel="% of answers with", ylim=(0, 118), yticks=range(0, 101, 20))
    axes.legend(loc="upper left", fontsize=8, ncols=2)
    return figure


def scaling() -> Figure:
    figure, (left, right) = panels(2)
    rows = table("scaling")
    names = [f"{row['model']}\n{row['gpus']}" for row in rows]
    base = [0.0] * len(rows)
    for phase, colour in zip(("rollout", "log_probabilities", "update"), (ORANGE, PINK, BLUE), strict=True):
        totals = [sum(float(row[name]) for name in ("rollout", "log_probabilities", "update", "sync")) for row in rows]
        shares = [100 * float(row[phase]) / total for row, total in zip(rows, totals, strict=True)]
        left.bar(names, shares, bottom=base, label=phase.replace("_", "-"), color=colour, width=0.7)
        base = [low + share for low, share in zip(base, shares, strict=True)]
    left.set(title="Shares of a step, readings on their own", ylabel="% of the step", xlabel="model, GPUs", ylim=(0, 118))
    left.legend(ncols=3, loc="upper center")
    for shift, (way, colour) in enumerate((("lockstep", GREY), ("on_their_own", ORANGE), ("asynchronous", GREEN))):
        places = [place for place, row in enumerate(rows) if row[way]]
        values = [float(rows[place][way]) / float(rows[place]["lockstep"]) for place in places]
        right.bar(
            [place + 0.27 * (shift - 1) for place in places], values, width=0.25, color=colour, label=way.replace("_", " ")
        )
    right.set_xticks(range(len(rows)), names)
    right.set(title="Length of a step, by kind of rollout", ylabel="lockstep = 1", xlabel="model, GPUs", ylim=(0, 1.35))
    right.legend(ncols=3, loc="upper center")
    return figure


def cluster() -> Figure:
    figure, (left, right) = panels(2)
    ours, theirs = batches("rl-1", "reward"), batches("rl-1-verl", "reward")
    left.plot(list(ours), [100 * value for value in ours.values()], color=BLUE, label="small trainer")
    left.plot(list(theirs), [100 * value for value in theirs.values()], "x", color=ORANGE, label="verl, two learners")
    left.set(title="Reward", xlabel="batch", ylabel="%")
    for quantity, colour, style in (("loss", BLUE, "o-"), ("grad_norm", ORANGE, "s-")):
        one, other = batches("rl-1", quantity), batches("rl-1-verl", quantity)
        apart = [abs(one[batch] - other[batch]) / abs(one[batch]) for batch in one]
        right.semilogy(list(one), apart, style, color=colour, label=quantity.replace("_", " "), markersize=3, lw=1)
    right.set(title="Relative difference of the two", xlabel="batch")
    for axes in (left, right):
        axes.legend()
    return figure


def grounding() -> Figure:
    figure, (facts, found, year) = panels(3, 3.4)
    rows = table("grounding")
    for shift, name, label, colour in (
        (-0.2, "right", "facts: right answer", BLUE),
        (0.2, "rightly", "absent: said to be", GREEN),
    ):
        share_bars(facts, [(int(row[name]), int(row["absent"])) for row in rows], shift, label, colour)
    facts.set_xticks(range(len(rows)), [row["format"] for row in rows])
    facts.set(title="Planted facts, by format", ylabel="%", ylim=(70, 115), yticks=range(70, 101, 10))
    facts.legend(loc="upper left", fontsize=8)
    quotes = table("alignment")[::-1]
    colours = [BLUE if row["quotes"] == "faithful" else ORANGE for row in quotes]
    share = [100 * (float(row["found"]) + float(row["elsewhere"])) for row in quotes]
    found.barh(range(len(quotes)), share, color=colours)
    found.set_yticks(range(len(quotes)), [row["change"] for row in quotes], fontsize=8)
    found.set(title="Changed and invented quotes", xlabel="% found", xlim=(0, 105))
    runs = table("watching")
    days = [int(row["day"]) for row in runs]
    year.plot(days, [float(row["seconds"]) for row in runs], ".", color=BLUE, markersize=2, label="a run")
    year.plot(days, [float(row["model"]) for row in runs], ".", color=GREY, markersize=2, label="of which the model")
    year.set(title="A watch, day by day", xlabel="day", ylabel="seconds")
    year.set_ylim(bottom=0)
    year.legend(loc="upper right", fontsize=8)
    return figure


def service() -> Figure:
    figure, (turns, memory, batch) = panels(3, 3.2)
    rows = [row for row in table("service-turns") if float(row["delay"]) >= 1]
    for shift, row, colour in zip((-0.2, 0.2), rows, (BLUE, GREY), strict=True):
        values = [float(row[name]) for name in ("p50", "p99", "computed")]
        bars = turns.bar([place + shift for place in range(3)], values, width=0.38, color=colour, label=row["way"])
        turns.bar_label(bars, [f"{value:.0f}" if value >= 10 else f"{value:.1f}" for value in values], fontsize=8)
    turns.set_xticks(range(3), ["p50", "p99", "computed"])
    turns.set(title="A turn besides the model's time", ylabel="ms", yscale="log", ylim=(2, 600))
    for run, colour in zip("123", (BLUE, ORANGE, GREEN), strict=True):
        held = [row for row in table("service-memory") if row["run"] == run]
        memory.plot([int(row["turns"]) for row in held], [float(row["megabytes"]) for row in held], color=colour)
    memory.set(title="Memory of one process, three runs", xlabel="turns", ylabel="MB", ylim=(0, 250))
    for way, colour, style in (("local", BLUE, "o-"), ("ray", ORANGE, "s-")):
        runs = [row for row in table("batch") if row["way"] == way and row["kills"] == "0"]
        places = [int(row["workers"]) for row in runs]
        batch.plot(places, [float(row["jobs_per_second"]) for row in runs], style, color=colour, label=way, markersize=4)
    floor = [(int(row["workers"]), 2000 / float(row["floor"])) for row in table("batch") if row["way"] == "local"]
    batch.plot(*zip(*floor, strict=True), "--", color=GREY, label="calls alone")
    batch.set(title="Batch of 2,000 jobs", xlabel="workers", ylabel="jobs/s")
    batch.set_xticks([1, 2, 4])
    batch.set_ylim(bottom=0)
    for axes in (turns, batch):
        axes.legend(loc="upper left", fontsize=8)
    return figure


def failed_experiments() -> Figure:
    figure, (axes,) = panels(1, 2.8)
    rows = table("failed")[::-1]
    for place, row in enumerate(rows):
        spread = float(row["interval"]) if row["interval"] else None
        axes.errorbar(
            [float(row["points"])], [place], xerr=spread, fmt="o" if spread else "D", color=BLUE if spread else GREY
        )
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(range(len(rows)), [row["experiment"] for row in rows], fontsize=8)
    axes.set(xlabel="points gained at 64 windows")
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    draw.__name__.replace("_", "-"): draw
    for draw in (
        extrapolation,
        readers,
        grounding,
        retention,
        reinforcement_learning,
        credit_assignment,
        memory_and_hops,
        speed_and_memory,
        speed_on_servers,
        chunk_first,
        general_model,
        natural_questions,
        names_and_wordings,
        gates,
        false_finds,
        chains_in_rounds,
        scaling,
        service,
        cluster,
        failed_experiments,
    )
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        for name, draw in FIGURES.items():
            draw().savefig(folder / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/results/figures")
