"""Readers side by side: accuracy, calls, tokens and seconds of each at several lengths, on one machine in one run.

    python -m benchmarks.readers OUT.csv [--model FOLDER] [--base-url URL | --slots N] [--reader NAME[,OPTION=VALUE …] …]
        [--task NAME …] [--questions FILE [--passages FILE]] [--tokens N …] [--samples N] [--alone N] [--seed N]
        [--keep FOLDER]

Every reader gets the same samples; `parallel,focus=true` is one with an option. `seconds` is the time of one reading that
runs alone, the mean of `--alone` of them, the readers taking turns sample by sample (machines are noisy), on samples of
their own, which no cache of prompts has seen; accuracy and counts are of all readings, which run together.
With `--slots` a llama.cpp server (xllamacpp) reads: it is started with the model's weights (f16) and that many requests at
a time. OUT.csv gets a row for each reader, task and length. Readings that failed count as wrong; `skipped` is the share of
the turns before the answer that left the memory as it was with the short form.
With `--keep` the readings of accuracy stay in FOLDER, and the same command goes on with them after an interrupt.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from memagent.core import Plan
from memagent.core.budgets import PAPER_WINDOW
from memagent.driver import Transcript, run
from memagent.evaluation.folder import RunFolder
from memagent.evaluation.runner import Evaluation, evaluate
from memagent.evaluation.runs import Run
from memagent.evaluation.statistics import wilson
from memagent.models.open import OpenModel, model_folder, open_model, open_tokenizer, read_defaults
from memagent.settings import Settings, make_plan, make_settings
from memagent.tasks.files import SampleFile
from memagent.tasks.synthesis import Recipe, write_samples

COLUMNS = "where reader task tokens n accuracy low high calls skipped tokens_in tokens_out share_read alone seconds".split()


def measured(opened: OpenModel, settings: Settings, samples: Path, batch: int, name: str = "") -> Iterator[dict[str, Any]]:
    """A row for each task and length of a sample file: accuracy and means over the readings, which stay in a folder beside
    it, of the name of the reader or another."""
    evaluation = Evaluation(
        samples=SampleFile.open(samples), opened=opened, settings=settings, attempts=1, batch=batch, concurrency=8
    )
    readings = samples.with_suffix("") / (name or settings.reader)
    with RunFolder.open(readings, evaluation.config()) as out:
        evaluate(evaluation, out, None)
    cells: dict[tuple[str, int], list[Any]] = {}
    for placed in Run.open(readings).records():
        record = placed.record
        cells.setdefault((record.task, int(record.meta["target"])), []).append(record)
    for (task, tokens), records in cells.items():
        right = sum(record.scores["strict"] for record in records)
        interval = wilson(right, len(records))
        yield {
            "reader": settings.reader,
            "task": task,
            "tokens": tokens,
            "n": len(records),
            "accuracy": round(right / len(records), 4),
            "low": round(interval.low, 4),
            "high": round(interval.high, 4),
            "calls": round(mean(len(record.turns) for record in records), 1),
            "skipped": round(mean(skipped(record) for record in records), 4),
            "tokens_in": round(mean(sum(turn.prompt_tokens for turn in record.turns) for record in records)),
            "tokens_out": round(mean(sum(turn.completion_tokens for turn in record.turns) for record in records)),
            "share_read": round(mean(read(record) for record in records), 4),
        }


def skipped(record: Any) -> float:
    """The share of the turns before the answer that were answered with the short form."""
    turns = [turn for turn in record.turns if turn.kind != "answer"]
    return sum(turn.outcome == "skipped" for turn in turns) / max(1, len(turns))


def read(record: Any) -> float:
    """The share of a document that some turn showed."""
    spans = sorted({(span.start, span.end) for turn in record.turns if turn.kind != "merge" for span in turn.spans})
    shown, end = 0, 0
    for start, stop in spans:
        shown += max(0, stop - max(start, end))
        end = max(end, stop)
    return shown / max(1, record.characters)


def alone(opened: OpenModel, plan: Plan) -> float:
    """Seconds of one reading."""
    began = time.perf_counter()
    [result] = run([plan], opened.engine, keep=False)
    if not isinstance(result, Transcript):
        raise result
    return time.perf_counter() - began


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.readers")
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="embedded")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--base-url")
    where.add_argument("--slots", type=int, help="serve the model with llama.cpp, this many requests at a time")
    parser.add_argument("--profile")
    parser.add_argument("--window", type=int)
    parser.add_argument("--budgets", type=int, nargs=4, metavar=("QUESTION", "CHUNK", "MEMORY", "ANSWER"))
    parser.add_argument("--reader", action="append", default=[])
    parser.add_argument("--task", action="append", default=[])
    parser.add_argument("--questions", type=Path, help="for tasks that ask real questions")
    parser.add_argument("--passages", type=Path, help="more passages to put between those of the questions")
    parser.add_argument("--tokens", action="append", type=int, default=[])
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--alone", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=401201)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the readings here, and go on with those it has")
    given = parser.parse_args(arguments)
    if given.slots is not None and given.slots < 1:
        parser.error(f"--slots {given.slots}: at least 1")
    with served(given) as opened, closing(opened.engine):
        compare(given, opened)


@contextmanager
def served(given: argparse.Namespace) -> Iterator[OpenModel]:
    """The model as the arguments say: in this process, or at a server, which may be one of our own."""
    if given.slots is None:
        yield open_model(given.model, base_url=given.base_url, window=given.window)
        return
    from memagent.models.gguf import write_gguf
    from tests.servers import llama_server

    folder = model_folder(given.model)
    defaults = read_defaults(folder)  # a server does not say how to read with its model
    window = given.window or defaults.window or PAPER_WINDOW
    with TemporaryDirectory() as out:
        weights = write_gguf(folder, Path(out) / "model.gguf", dtype="f16")
        with llama_server(weights, window=window, slots=given.slots, cache=0) as server:
            there = open_model("model", base_url=server.url, window=window, concurrency=given.slots)
            yield replace(there, defaults=defaults)


def compare(given: argparse.Namespace, opened: OpenModel) -> None:
    """Reads with every reader and writes the table as it grows."""
    names = ("question_tokens", "chunk_tokens", "memory_tokens", "answer_tokens")
    chosen: dict[str, Any] = dict(zip(names, given.budgets or (), strict=False))
    if given.profile:
        chosen["profile"] = given.profile
    settings = {name: settings_of(name, opened, given.model, chosen) for name in given.reader}
    where = f"llama.cpp, {given.slots} slots" if given.slots else given.base_url or "in process"
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as passing:
        folder = given.keep or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        for tokens in given.tokens or [1024]:
            for task in given.task or ["niah_single_2"]:
                file = folder / f"{task}-{tokens}.jsonl"
                recipe = recipe_of(given, task, tokens, questions=given.questions, passages=given.passages)
                write_samples(recipe, file)
                write_samples(replace(recipe, samples=max(1, given.alone), seed=given.seed + 1), file.with_suffix(".alone"))
                made = list(islice(SampleFile.open(file.with_suffix(".alone")), given.alone))
                here = [
                    {**row, "reader": name}
                    for name, one in settings.items()
                    for row in measured(opened, one, file, given.batch, name)
                ]
                seconds: dict[str, list[float]] = {name: [] for name in settings}
                for sample in made:
                    for name, one in settings.items():
                        seconds[name].append(alone(opened, make_plan(sample.document, sample.question, one, opened)))
                for row in here:
                    took = seconds[row["reader"]]
                    rows.append(
                        {"where": where, **row, "alone": len(took), "seconds": round(mean(took), 3) if took else ""}
                    )
                    print(rows[-1], file=sys.stderr)
                write(given.out, COLUMNS, rows)


def settings_of(named: str, opened: OpenModel, model: str, chosen: Mapping[str, Any]) -> Settings:
    """The settings for a reader that may be named with options, their values in JSON."""
    name, *given = named.split(",")
    options = {option: json.loads(value) for option, _, value in (one.partition("=") for one in given)}
    return make_settings(opened, model=model, reader=name, reader_options=options, **chosen)


def recipe_of(given: argparse.Namespace, task: str, tokens: int, **materials: Any) -> Recipe:
    """`--samples` samples of a task, of a length in tokens of the embedded model, by `--seed`."""
    counted = partial(open_tokenizer, "embedded")
    made = {"samples": given.samples, "seed": given.seed, "tokenizer": counted}
    return Recipe(tasks=(task,), tokens=(tokens,), **made, **materials)


def write(path: Path, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """The rows as a table with these columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
