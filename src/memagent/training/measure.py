"""Accuracy of a model folder on needle documents, read by the package's own driver: the numbers a model card may quote.

    python -m memagent.training.measure FOLDER --books data/books/moby_dick.txt.gz --tokens 16384 --samples 200

Documents are drawn from books and words that training never uses. Decoding is greedy. A reading that fails counts as wrong.
One JSON line per reading goes to --log.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from memagent.driver import Transcript, read_batch
from memagent.models.open import OpenModel, open_model
from memagent.scoring import strict
from memagent.settings import Settings, make_plan, make_settings
from memagent.tasks.haystack import Haystack
from memagent.tasks.needle import SPECS, needle
from memagent.tasks.samples import Sample
from memagent.training.exam import StringText


@dataclass(frozen=True, slots=True)
class Result:
    """One reading: what was expected and what came of it."""

    sample: Sample
    answer: str
    score: float
    turns: int
    memory: str

    def to_json(self) -> dict[str, object]:
        depth = self.sample.facts[0].start / len(self.sample.document)
        return {
            "id": self.sample.id,
            "tokens": self.sample.tokens,
            "question": self.sample.question,
            "gold": self.sample.gold,
            "answer": self.answer,
            "score": self.score,
            "turns": self.turns,
            "depth": round(depth, 4),
            "fact": self.sample.facts[0].text,
            "memory": self.memory,
        }


def measure(opened: OpenModel, settings: Settings, samples: list[Sample]) -> Iterator[Result]:
    """Reads the samples in lockstep and scores the answers."""
    plans = [make_plan(StringText(sample.document), sample.question, settings, opened) for sample in samples]
    for sample, outcome in zip(samples, read_batch(plans, opened.engine), strict=True):
        done = outcome if isinstance(outcome, Transcript) else None
        answer, memory = (done.answer, done.memory) if done else (f"failed: {outcome}", "")
        score = strict(answer, sample.answers, sample.mode) if done else 0.0
        yield Result(sample, answer, score, len(done.records) if done else 0, memory)


def wilson(right: float, total: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % Wilson interval of a proportion."""
    share = right / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, middle - half), min(1.0, middle + half)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a model folder on needle documents.")
    parser.add_argument("folder", help="model folder, or 'embedded'")
    parser.add_argument("--books", type=Path, nargs="+", required=True, help="texts to hide facts in")
    parser.add_argument("--task", choices=sorted(SPECS), default="single")
    parser.add_argument("--tokens", type=int, default=16384, help="length of the documents")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first sample")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--batch", type=int, default=50, help="readings in lockstep")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--log", type=Path, help="file for one JSON line per reading")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    opened = open_model(options.folder)
    settings = make_settings(opened, model=options.folder)
    haystack, count = Haystack.load(options.books), opened.engine.tokenizer.count
    right, done, turns, began = 0.0, 0, 0, time.perf_counter()
    indices = range(options.first, options.first + options.samples)
    for place in range(0, len(indices), options.batch):
        part = indices[place : place + options.batch]
        spec = SPECS[options.task]
        samples = [needle(spec, haystack, count, tokens=options.tokens, seed=options.seed, index=i) for i in part]
        for result in measure(opened, settings, samples):
            right, done, turns = right + result.score, done + 1, turns + result.turns
            if options.log:
                with options.log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result.to_json(), ensure_ascii=False) + "\n")
        low, high = wilson(right, done)
        print(
            f"{options.task} {options.tokens}: {100 * right / done:.1f} % of {done}"
            f" (95 % interval {100 * low:.1f} to {100 * high:.1f}), {turns / done:.1f} turns a reading,"
            f" {(time.perf_counter() - began) / done:.2f} s a reading",
            flush=True,
        )


if __name__ == "__main__":
    main()
