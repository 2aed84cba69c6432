"""Accuracy of a model on single-needle questions in book text, through the package's own reading loop.

    python benchmarks/needle_accuracy.py [--model embedded] [--windows 1 16 128] [--samples 200] [--seed 7] [-o FILE.jsonl]

Evaluation words, evaluation book (Moby-Dick) and seed are disjoint from training's. Every sample is a document of
N × the window with one fact at a uniform depth; strict scorer; greedy. A reading that fails counts as wrong. The interval
is Wilson's, 95 %. One JSON line is written per sample.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memagent.documents import from_text
from memagent.driver import Transcript, run
from memagent.models.open import OpenModel, open_model
from memagent.scoring import strict
from memagent.settings import make_plan, make_settings
from memagent.tasks.haystack import Haystack
from memagent.tasks.needle import NeedleSpec, needle
from memagent.tasks.samples import Sample

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "data/books/moby_dick.txt.gz"


def wilson(right: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's interval for a proportion (1927)."""
    p, half = right / n, z * math.sqrt(right / n * (1 - right / n) / n + z * z / (4 * n * n))
    middle, scale = p + z * z / (2 * n), 1 + z * z / n
    return (middle - half) / scale, (middle + half) / scale


def samples(opened: OpenModel, tokens: int, count: int, seed: int, start: int) -> Iterator[Sample]:
    haystack = Haystack.load([BOOK])
    for index in range(start, start + count):
        yield needle(
            NeedleSpec(split="eval"), haystack, opened.engine.tokenizer.count, tokens=tokens, seed=seed, index=index
        )


def evaluate(opened: OpenModel, batch: list[Sample]) -> list[dict[str, Any]]:
    """Reads a batch of samples in lockstep; one record for each."""
    settings = make_settings(opened, model="evaluated")
    documents = [from_text(sample.document) for sample in batch]
    plans = [make_plan(text, sample.question, settings, opened) for text, sample in zip(documents, batch, strict=True)]
    records = []
    for sample, plan, result in zip(batch, plans, run(plans, opened.engine), strict=True):
        answer = result.answer if isinstance(result, Transcript) else ""
        records.append(
            {
                "id": sample.id,
                "tokens": plan.tokens,
                "turns": plan.turns,
                "depth": sample.facts[0].start / len(sample.document),
                "question": sample.question,
                "accepted": list(sample.answers),
                "answer": answer,
                "memory": result.memory if isinstance(result, Transcript) else "",
                "error": None if isinstance(result, Transcript) else str(result),
                "score": strict(answer, sample.answers, sample.mode),
            }
        )
    for document in documents:
        document.close()
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 16, 128], help="document length, in windows")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--start", type=int, default=0, help="index of the first sample, to share the work")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--batch", type=int, default=100, help="readings in lockstep")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    opened = open_model(arguments.model)
    window = opened.engine.window or 0
    log = arguments.output.open("w") if arguments.output else None
    print("| length | tokens | n | right | accuracy | 95 % interval | seconds |\n|---|---|---|---|---|---|---|", flush=True)
    for windows in arguments.windows:
        began, records = time.perf_counter(), []
        for first in range(0, arguments.samples, arguments.batch):
            count = min(arguments.batch, arguments.samples - first)
            batch = samples(opened, windows * window, count, arguments.seed, arguments.start + first)
            records += evaluate(opened, list(batch))
        for record in records:
            if log:
                log.write(json.dumps({"windows": windows, **record}) + "\n")
            if not record["score"]:
                print(f"wrong: {record['question']} {record['accepted']} ≠ {record['answer']!r}", file=sys.stderr)
        right, n = sum(record["score"] == 1 for record in records), len(records)
        low, high = wilson(right, n)
        seconds = time.perf_counter() - began
        interval = f"{low:.1%}–{high:.1%}"
        print(f"| {windows} × | {windows * window:,} | {n} | {right} | {right / n:.1%} | {interval} | {seconds:.0f} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
