"""The scores of many readings, kept in one small file: how they are collected, and the tables they make.

    python benchmarks/at_length.py add SCORES WAY RUN [RUN …]
    python benchmarks/at_length.py table SCORES WAY [OTHER]

SCORES is JSON: way to read → tokens → seed → task → the strict scores of samples 0, 1, … `add` puts in the readings of run
folders whose samples `memagent synth` made; one that is there already is replaced. `table` prints a row for each task, with
95 % Wilson intervals and the number of readings; with OTHER also how WAY differs from it on the samples that both have,
with 1.96 standard errors.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import TypeAlias

from memagent.errors import MemagentError
from memagent.evaluation.runs import Run
from memagent.evaluation.statistics import wilson
from memagent.tasks.catalog import CATALOG

Scores: TypeAlias = dict[str, dict[str, dict[str, list[float]]]]  # tokens → seed → task → scores

_APART = ("updates", "multihop")  # not in the mean: neither needles nor chains of variables


def readings(runs: list[Path]) -> Iterator[tuple[str, str, str, int, float]]:
    """Tokens, seed, task, number of the sample and strict score of every reading, in the order of the samples."""
    found = []
    for folder in runs:
        run = Run.open(folder)
        if not run.finished:
            raise MemagentError(f"{folder} is not finished: run its command again")
        for placed in run.records():
            record = placed.record
            task, *given = record.sample.rsplit("-", 3)
            if len(given) != 3 or not all(part.isdecimal() for part in given) or record.attempt:
                raise MemagentError(f"{folder}: {record.sample}, attempt {record.attempt}, is no single reading of synth's")
            tokens, seed, number = given
            found.append((tokens, seed, task, int(number), record.scores["strict"]))
    yield from sorted(found)


def add(scores: Scores, runs: list[Path]) -> tuple[int, int]:
    """Put the readings in; returns how many are new and how many took another's place."""
    new = replaced = 0
    for tokens, seed, task, number, score in readings(runs):
        listed = scores.setdefault(tokens, {}).setdefault(seed, {}).setdefault(task, [])
        if number > len(listed):
            raise MemagentError(f"{task} of {tokens} tokens, seed {seed}: sample {len(listed)} comes before {number}")
        if number == len(listed):
            listed.append(score)
            new += 1
        else:
            listed[number] = score
            replaced += 1
    return new, replaced


def of(scores: Scores, tokens: str, tasks: list[str]) -> dict[tuple[str, str, int], float]:
    """The scores of these tasks at one length, by seed, task and number of the sample."""
    return {
        (seed, task, number): score
        for seed, listed in scores.get(tokens, {}).items()
        for task in tasks
        for number, score in enumerate(listed.get(task, ()))
    }


def cell(scores: Scores, tokens: str, tasks: list[str]) -> str:
    values = list(of(scores, tokens, tasks).values())
    if not values:
        return ""
    bounds = wilson(sum(values), len(values))
    return f"{100 * mean(values):.1f} ({100 * bounds.low:.0f}–{100 * bounds.high:.0f}; {len(values)})"


def gains(scores: Scores, other: Scores, tokens: str, tasks: list[str]) -> list[float]:
    """How many points SCORES is above OTHER in each sample that both have."""
    ours, theirs = of(scores, tokens, tasks), of(other, tokens, tasks)
    return [100 * (ours[sample] - theirs[sample]) for sample in sorted(ours.keys() & theirs.keys())]


def interval(values: list[float]) -> float:
    """Half of the 95 % interval of the mean: 1.96 standard errors."""
    return 1.96 * stdev(values) / math.sqrt(len(values))


def difference(scores: Scores, other: Scores, tokens: str, tasks: list[str]) -> str | None:
    """Points gained, better and worse readings, and their number, as cells of a row; None with fewer than two readings."""
    gained = gains(scores, other, tokens, tasks)
    if len(gained) < 2:
        return None
    better, worse = sum(value > 0 for value in gained), sum(value < 0 for value in gained)
    return f"{mean(gained):+.1f} ± {interval(gained):.1f} | {better}, {worse} | {len(gained)}".replace("-", "−")


def table(ways: dict[str, Scores]) -> None:
    (way, ours), *others = ways.items()
    lengths = sorted(ours, key=int)
    read = {task for length in lengths for listed in ours[length].values() for task in listed}
    tasks = [task for task in CATALOG if task in read]
    together = [task for task in tasks if task not in _APART]
    rows = [(task, [task]) for task in together]
    rows += [(task, [task]) for task in tasks if task in _APART]
    rows += [("mean of needles and vt", together)]
    print(f"| task | | {' | '.join(f'{int(length):,}' for length in lengths)} |")
    print("|---" * (len(lengths) + 2) + "|")
    for name, chosen in rows:
        for title, scores in [*others, (way, ours)]:
            print(f"| {name} | {title} | {' | '.join(cell(scores, length, chosen) for length in lengths)} |")
    for title, other in others:
        print(f"\n| tokens | task | {way}, less {title} | better, worse | readings |\n|---|---|---|---|---|")
        for name, chosen in rows[::-1]:
            for length in lengths:
                if gained := difference(ours, other, length, chosen):
                    print(f"| {int(length):,} | {name} | {gained} |")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    adding, printing = commands.add_parser("add"), commands.add_parser("table")
    for command in (adding, printing):
        command.add_argument("scores", type=Path, metavar="SCORES")
        command.add_argument("way", metavar="WAY")
    adding.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    printing.add_argument("other", nargs="?", metavar="OTHER")
    given = parser.parse_args(arguments)
    if given.command == "add":
        kept: dict[str, Scores] = json.loads(given.scores.read_text(encoding="utf-8")) if given.scores.exists() else {}
        try:
            new, replaced = add(kept.setdefault(given.way, {}), given.runs)
        except MemagentError as error:
            parser.error(str(error))
        given.scores.write_text(json.dumps(kept) + "\n", encoding="utf-8")
        print(f"{given.way}: {new} readings added, {replaced} replaced")
        return
    if not given.scores.is_file():
        parser.error(f"{given.scores} is no file of scores")
    kept = json.loads(given.scores.read_text(encoding="utf-8"))
    for way in filter(None, (given.way, given.other)):
        if way not in kept:
            parser.error(f"{way!r} is no way to read of {given.scores}: there are {', '.join(map(repr, kept))}")
    table({way: kept[way] for way in filter(None, (given.way, given.other))})


if __name__ == "__main__":
    main()
