"""The figures of docs/results about questions in natural words, from the data in experiments/."""

from __future__ import annotations

from matplotlib.figure import Figure

from benchmarks.plots import BLUE, GREEN, GREY, ORANGE, PINK, batches, in_fives, panels, share_bars, table


def natural_questions() -> Figure:
    """Answers to questions in natural words, by how the text and the question are worded."""
    rows = table("natural")
    kinds = list(dict.fromkeys(row["wordings"] for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure, (axes,) = panels(1)
    for place, (model, colour) in enumerate(zip(models, (GREY, ORANGE, GREEN, BLUE), strict=True)):
        mine = [row for row in rows if row["model"] == model]
        counted = [(float(row["accuracy"]) * int(row["n"]), int(row["n"])) for row in mine]
        share_bars(axes, counted, 0.21 * (place - 1.5), model, colour, width=0.2)
    axes.set_xticks(range(len(kinds)), kinds)
    axes.set(ylabel="% of answers that are right", ylim=(0, 128), yticks=range(0, 101, 20))
    axes.legend(loc="upper left", fontsize=8, ncols=2)
    return figure


def names_and_wordings() -> Figure:
    """Answers to questions about names in the forms of earlier training and in many, before and after training on these."""
    rows = table("name-forms")
    kinds = list(dict.fromkeys(f"{row['forms']},\n{row['wordings']}" for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure, (axes,) = panels(1)
    for shift, model, colour in zip((-0.3, -0.1, 0.1, 0.3), models, (GREY, BLUE, ORANGE, GREEN), strict=True):
        counted = [(float(row["accuracy"]) * int(row["n"]), int(row["n"])) for row in rows if row["model"] == model]
        share_bars(axes, counted, shift, model, colour, width=0.18)
    axes.set_xticks(range(len(kinds)), kinds)
    axes.set(ylabel="% of answers that are right", ylim=(0, 118), yticks=range(0, 101, 20))
    axes.legend(loc="upper left", fontsize=8, ncols=4)
    return figure


def gates() -> Figure:
    """Reinforcement learning of gates in two runs, one after the other: rewards, and answers before and after."""
    figure, (left, right) = panels(2)
    for task, label, colour in (
        ("facts_gated", "gated", ORANGE),
        ("facts_parallel", "parallel", GREEN),
        ("facts_absent_parallel", "parallel, no answer in the document", PINK),
    ):
        first, second = (batches(run, f"reward/{task}") for run in ("rl-gates", "rl-rounds"))
        for values, name in ((first, label), ({40 + step: value for step, value in second.items()}, None)):
            steps, rewards = in_fives(values)
            left.plot(steps, rewards, "o-", color=colour, label=name)
    left.axvline(40.5, color=GREY, lw=0.8)
    left.text(41.5, 100, "rl-rounds", fontsize=8)
    left.set(title="Single facts, sampled readings", xlabel="batch", ylabel="mean reward, %", ylim=(0, 105))
    left.legend(loc="lower right", fontsize=8)
    rows = table("gates")
    kinds = list(dict.fromkeys((row["reader"], row["wordings"]) for row in rows))
    for shift, model, colour in ((-0.27, "before", GREY), (0, "after rl-gates", BLUE), (0.27, "the mean of both", GREEN)):
        counted = [(float(row["accuracy"]) * int(row["n"]), int(row["n"])) for row in rows if row["model"] == model]
        share_bars(right, counted, shift, model, colour, width=0.25)
    labels = [f"{wordings}\n{reader if place % 3 == 1 else ''}" for place, (reader, wordings) in enumerate(kinds)]
    right.set_xticks(range(len(kinds)), labels, fontsize=6)
    right.set(title="Greedy readings", ylabel="% of answers that are right", ylim=(0, 125), yticks=range(0, 101, 20))
    right.legend(loc="upper left", fontsize=8, ncols=3)
    return figure


def false_finds() -> Figure:
    """False finds in text that no training showed: readings that changed their memory for nothing, and right answers."""
    rows = table("false-finds")
    texts = {"far": "Moby-Dick,\n437 windows", "dickens": "Great Expectations,\n192 windows"}
    figure, (left, right) = panels(2)

    def total(some: list[dict[str, str]], column: str) -> int:
        return sum(int(row[column]) for row in some)

    named = {"eighth": "eighth version", "ninth": "ninth version", "rl": "after the first run", "tenth": "tenth version"}
    for place, ((model, label), colour) in enumerate(zip(named.items(), (GREY, ORANGE, BLUE, GREEN), strict=True)):
        measured = [text for text in texts if any(row["run"] == f"{model}-{text}" for row in rows)]
        mine = [[row for row in rows if row["run"] == f"{model}-{text}"] for text in measured]
        shift = 0.2 * (place - 1.5)
        disturbed = [(total(one, "disturbed"), total(one, "readings")) for one in mine]
        share_bars(left, disturbed, shift, label, colour, width=0.19)
        counted = [
            (sum(float(row["score"]) * int(row["readings"]) / 100 for row in one), total(one, "readings")) for one in mine
        ]
        share_bars(right, counted, shift, label, colour, width=0.19)
    left.set(title="The memory changed for nothing", ylabel="% of readings", ylim=(0, 60))
    right.set(title="Nine tasks", ylabel="% of answers that are right", ylim=(0, 130), yticks=range(0, 101, 20))
    for axes in (left, right):
        axes.set_xticks(range(len(texts)), texts.values())
        axes.legend(loc="upper right" if axes is left else "upper left", fontsize=8, ncols=1 if axes is left else 2)
    return figure


def chains_in_rounds() -> Figure:
    """Chains of two facts read in rounds: rewards while that was learnt, and answers before and after by length."""
    figure, (left, right) = panels(2)
    for task, label, colour in (
        ("multihop_parallel", "chains, parallel", GREEN),
        ("facts_parallel", "single facts, parallel", BLUE),
        ("facts_memory", "single facts, memory", GREY),
    ):
        steps, rewards = in_fives(batches("rl-round-chains", f"reward/{task}"))
        left.plot(steps, rewards, "o-", color=colour, label=label)
    left.set(title="Sampled readings", xlabel="batch", ylabel="mean reward, %", ylim=(0, 105))
    left.legend(loc="lower right", fontsize=8)
    rows = table("chains")
    lengths = list(dict.fromkeys(row["tokens"] for row in rows))
    bars = (
        ("tenth", "memory", "memory, tenth version", GREY),
        ("tenth", "parallel", "parallel, tenth version", ORANGE),
        ("eleventh", "parallel", "parallel, eleventh version", GREEN),
        ("eleventh", "parallel,focus=true", "the same with --focus", BLUE),
    )
    for place, (model, reader, label, colour) in enumerate(bars):
        mine = [row for row in rows if (row["model"], row["reader"]) == (model, reader)]
        counted = [(float(row["accuracy"]) * int(row["n"]), int(row["n"])) for row in mine]
        share_bars(right, counted, 0.2 * (place - 1.5), label, colour, width=0.19)
    windows = [int(tokens) // 1024 for tokens in lengths]
    right.set_xticks(range(len(lengths)), [f"{count} window{'s'[: count != 1]}" for count in windows])
    right.set(title="Greedy readings of chains", ylabel="% of answers that are right", ylim=(0, 140))
    right.set_yticks(range(0, 101, 20))
    right.legend(loc="upper left", fontsize=7, ncols=2)
    return figure
