"""`memagent eval`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from memagent.cli import interrupts
from memagent.cli.console import MODEL, boundary, err, print_json, write
from memagent.cli.options import (
    AsJson,
    BaseUrl,
    Concurrency,
    Temperature,
    Timeout,
    TokenizerPath,
    Tokens,
    TopP,
    Window,
    absolute,
    opened_model,
    server_of,
)
from memagent.settings import make_settings

if TYPE_CHECKING:
    from memagent.evaluation.runner import Evaluation


SamplesPerQuestion = Annotated[
    int, typer.Option(min=1, help="Readings of each sample, each with its own seed; needs --temperature.")
]
Direct = Annotated[
    bool | None,
    typer.Option("--direct/--by-turns", help="How baselines show text: answered at once, or as a chunk of a reading."),
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Read again what failed because of the server or the model.")
]


def evaluate(
    file: Annotated[Path, typer.Argument(help="A sample file, as `memagent synth` writes it.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The run folder; one that was stopped goes on.")],
    reader: Annotated[str, typer.Option("--reader", "-r", help="memory, whole, truncate, retrieve or refine.")] = "memory",
    model: Annotated[str, typer.Option("--model", "-m", help="'embedded', a folder, or a served name.")] = "embedded",
    base_url: BaseUrl = None,
    profile: Annotated[str | None, typer.Option(help="Prompt profile: a name or a TOML file.")] = None,
    chunk_tokens: Tokens = None,
    memory_tokens: Tokens = None,
    answer_tokens: Tokens = None,
    question_tokens: Tokens = None,
    reasoning_tokens: Annotated[int | None, typer.Option(min=0, help="Room for thinking before each reply.")] = None,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    rules: Annotated[str, typer.Option(help="How odd replies are handled: careful or paper.")] = "careful",
    samples_per_question: SamplesPerQuestion = 1,
    passages: Annotated[int, typer.Option(min=1, help="Passages that --reader retrieve shows.")] = 8,
    direct: Direct = None,
    batch: Annotated[int, typer.Option(min=1, help="Readings in lockstep, for a model in this process.")] = 50,
    concurrency: Concurrency = 8,
    retry_failed: RetryFailed = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of a model in this process.")] = None,
    timeout: Timeout = 600.0,
    window: Window = None,
    tokenizer: TokenizerPath = None,
    as_json: AsJson = False,
) -> None:
    """Have a reader read every sample of a file, score the answers and keep every turn in a run folder."""
    with boundary() as hints, ExitStack() as stack:
        from memagent.evaluation.readers import Comparison
        from memagent.evaluation.runner import Evaluation
        from memagent.tasks.files import SampleFile

        samples = SampleFile.open(file)
        url = server_of(model, base_url)
        opened = opened_model(stack, model, url, concurrency, timeout, window, tokenizer)
        _use_threads(threads)
        settings = make_settings(
            opened, model=model, base_url=url, tokenizer=absolute(tokenizer) if tokenizer else None, profile=profile,
            question_tokens=question_tokens, chunk_tokens=chunk_tokens, memory_tokens=memory_tokens,
            answer_tokens=answer_tokens, reasoning_tokens=reasoning_tokens, temperature=temperature, top_p=top_p,
            seed=seed, rules=rules,  # type: ignore[arg-type]  # checked there
        )  # fmt: skip
        evaluation = Evaluation(
            samples=samples,
            opened=opened,
            settings=settings,
            reader=reader,  # type: ignore[arg-type]  # checked there
            comparison=Comparison(passages=passages, direct=opened.defaults.direct if direct is None else direct),
            attempts=samples_per_question,
            batch=batch,
            concurrency=concurrency,
        )
        _run(evaluation, output, retry_failed, hints)
        useless = _report(output, as_json)
        sys.stdout.flush()
        if useless:
            raise typer.Exit(MODEL)


def _run(evaluation: Evaluation, output: Path, retry_failed: bool, hints: list[str]) -> None:
    """Begins the run in a folder, or goes on with it, and shows how far it is."""
    from memagent.evaluation.folder import RunFolder
    from memagent.evaluation.runner import TRANSIENT, evaluate

    again = (*TRANSIENT, "empty") if retry_failed else ()
    with RunFolder.open(output, evaluation.config(), again=again) as folder:
        hints.append(f"the run in {output} can go on: give the same command again")
        with _shown(len(evaluation.samples) * evaluation.attempts) as watcher:
            evaluate(evaluation, folder, watcher)
        interrupts.check()


@contextlib.contextmanager
def _shown(total: int) -> Iterator[Callable[[Any], None]]:
    """A bar with readings done, turns and tokens per second, where there is a terminal."""
    began = time.monotonic()
    with Progress(
        TextColumn("readings"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        console=err,
        transient=True,
    ) as bar:
        line = bar.add_task("", total=total)

        def update(tally: Any) -> None:
            speed = tally.tokens / max(1e-9, time.monotonic() - began)
            text = f"{tally.turns:,} turns · {speed:,.0f} tokens/s"
            bar.update(line, completed=tally.finished, description=text)

        yield update


def _use_threads(threads: int | None) -> None:
    """For a model in this process: several runs side by side are faster with one thread each than one run with several."""
    torch = sys.modules.get("torch")
    if torch is not None and threads is not None:
        torch.set_num_threads(threads)


def _report(output: Path, as_json: bool) -> bool:
    """The strict score by task and length: a first look; `memagent report` says more.

    Returns whether no reading came to an answer, for another reason than that the documents are too long for the reader.
    """
    from memagent.evaluation.runs import Run

    cells: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    failures: Counter[str] = Counter()
    total = 0
    for placed in Run.open(output).records():
        record, total = placed.record, total + 1
        cells[record.task, int(record.meta.get("target", record.tokens))].append(record.scores["strict"])
        if record.error_kind is not None:
            failures[record.error_kind] += 1
    useless = sum(failures.values()) == total > failures["too_long"]
    if as_json:
        rows = [
            {"task": task, "tokens": tokens, "readings": len(found), "strict": sum(found) / len(found)}
            for (task, tokens), found in sorted(cells.items())
        ]
        print_json({"run": str(output), "cells": rows, "failures": failures})
        return useless
    for task in sorted({task for task, _ in cells}):
        lengths = sorted(tokens for name, tokens in cells if name == task)
        found = [score for tokens in lengths for score in cells[task, tokens]]
        if 1 < len(lengths) > len(found) / 2:  # documents with lengths of their own
            write(f"{task:<20} {lengths[0]:,} to {lengths[-1]:,} tokens  {_share(found)}")
            continue
        for tokens in lengths:
            write(f"{task:<20} {tokens:>10,} tokens  {_share(cells[task, tokens])}")
    for kind, count in sorted(failures.items()):
        write(f"failed, counted as wrong: {count} ({kind})")
    write(f"\nthe report: memagent report {output} -o report.html")
    return useless


def _share(scores: list[float]) -> str:
    return f"{100 * sum(scores) / len(scores):5.1f} %  of {len(scores)} readings"
