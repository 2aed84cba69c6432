"""`memagent eval`."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memagent.cli import interrupts
from memagent.cli.console import MODEL, boundary, note_moved, print_json, write, write_models
from memagent.cli.options import AsJson, Chosen, reads
from memagent.cli.progress import run_shown
from memagent.errors import ConfigError
from memagent.models.concurrency import most_of

if TYPE_CHECKING:
    from memagent.evaluation.runner import Evaluation


SamplesPerQuestion = Annotated[
    int, typer.Option(min=1, help="Number of readings of each sample, with different seeds; needs --temperature.")
]
Renamed = Annotated[bool | None, typer.Option("--direct/--by-turns", hidden=True)]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Repeat readings that failed because of the server or the model.")
]


@reads
def evaluate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sample file, for example from `memagent synth`.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The run folder. An unfinished run is continued.")],
    chosen: Chosen,
    samples_per_question: SamplesPerQuestion = 1,
    batch: Annotated[int, typer.Option(min=1, help="Readings at once, for an in-process model.")] = 50,
    retry_failed: RetryFailed = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of an in-process model.")] = None,
    renamed: Renamed = None,
    as_json: AsJson = False,
) -> None:
    """Read every sample of a file, score the answers and save every turn in a run folder."""
    with boundary() as hints, ExitStack() as stack:
        from memagent.evaluation.runner import Evaluation
        from memagent.tasks.files import SampleFile

        if renamed is not None:
            raise ConfigError("--by-turns is now named --through-memory, and --direct is now named --from-text")
        samples = SampleFile.open(file)
        opened = chosen.opened(stack)
        _use_threads(threads)
        evaluation = Evaluation(
            samples=samples,
            opened=opened,
            settings=chosen.settings(opened),
            attempts=samples_per_question,
            batch=batch,
            concurrency=most_of(chosen.concurrency),
        )
        _run(evaluation, output, retry_failed, hints)
        useless = _report(output, as_json)
        sys.stdout.flush()
        if useless:
            raise typer.Exit(MODEL)


def _run(evaluation: Evaluation, output: Path, retry_failed: bool, hints: list[str]) -> None:
    """Starts or continues the run in a folder, and shows its progress."""
    from memagent.evaluation.folder import RunFolder
    from memagent.evaluation.runner import TRANSIENT, evaluate

    again = (*TRANSIENT, "empty") if retry_failed else ()
    with RunFolder.open(output, evaluation.config(), again=again) as folder:
        hints.append(f"to continue the run in {output}, repeat the same command")
        if evaluation.work(folder.done):
            note_moved(evaluation.settings.identity, folder.config["model"], f"the run in {output}")
        with run_shown(len(evaluation.samples) * evaluation.attempts) as watcher:
            evaluate(evaluation, folder, watcher)
        interrupts.check()


def _use_threads(threads: int | None) -> None:
    """Sets the threads of an in-process model. Several runs with one thread each are faster than one run with several."""
    torch = sys.modules.get("torch")
    if torch is not None and threads is not None:
        torch.set_num_threads(threads)


def _report(output: Path, as_json: bool) -> bool:
    """Prints the score by task and length: strict, or of the scorer that the samples name. `memagent report` shows more.

    Returns whether every reading failed, not only because the documents are too long for the reader.
    """
    from memagent.evaluation.runs import Run

    cells: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    strict: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    scorers: defaultdict[str, set[str]] = defaultdict(set)
    failures, models, total = Counter[str](), Counter[str](), 0
    run = Run.open(output)
    for placed in run.records():
        record, total = placed.record, total + 1
        if made_by := run.model_of(record):
            models[made_by] += 1
        cell, name = (record.task, int(record.meta.get("target", record.tokens))), record.scorer or "strict"
        cells[cell].append(record.scores[name])
        strict[cell].append(record.scores["strict"])
        scorers[record.task].add(name)
        if record.error_kind is not None:
            failures[record.error_kind] += 1
    useless = failures.total() == total > failures["too_long"]
    if as_json:
        rows = [
            {"task": task, "tokens": tokens, "readings": len(found), "strict": sum(found) / len(found)}
            | ({"own": sum(cells[task, tokens]) / len(found)} if scorers[task] != {"strict"} else {})
            for (task, tokens), found in sorted(strict.items())
        ]
        print_json({"run": str(output), "cells": rows, "failures": failures, "models": models})
        return useless
    for task in sorted({task for task, _ in cells}):
        lengths = sorted(tokens for name, tokens in cells if name == task)
        found = [score for tokens in lengths for score in cells[task, tokens]]
        by = "" if scorers[task] == {"strict"} else f"  by {', '.join(sorted(scorers[task]))}"
        if 1 < len(lengths) > len(found) / 2:  # documents without requested lengths
            write(f"{task:<20} {lengths[0]:,} to {lengths[-1]:,} tokens  {_share(found)}{by}")
            continue
        for tokens in lengths:
            write(f"{task:<20} {tokens:>10,} tokens  {_share(cells[task, tokens])}{by}")
    for kind, count in sorted(failures.items()):
        write(f"failed readings, counted as wrong: {count} ({kind})")
    write_models(models)
    write(f"\nto write a report: memagent report {output} -o report.html")
    return useless


def _share(scores: list[float]) -> str:
    return f"{100 * sum(scores) / len(scores):5.1f} %  of {len(scores)} readings"
