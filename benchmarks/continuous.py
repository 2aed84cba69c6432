"""Readings with replies of unlike length: continuous batching against lockstep, and against `generate` of transformers.

    python -m benchmarks.continuous OUT.csv [--model FOLDER] [--hidden 512] [--layers 8] [--readings 32] [--turns 4]
        [--prompt 300] [--replies even spread gated] [--repeat 2] [--threads 1] [--dtype float32]

A Llama with random weights, or the model of a folder, replies to the turns of some readings: random tokens. A turn of a
reading comes when the one before it has ended. How long replies are is drawn before: *even*: all have 64 tokens; *spread*:
8 to 120, all as likely; *gated*: nine of ten have three tokens (a chunk that is skipped), the others 8 to 120. `generate`
gets the turns of all readings in one batch and goes on to the longest reply; so does lockstep, but rows leave as they are
done. Engines take turns; seconds are the median of whole runs. `rows` are those of a pass after the prompts, on average.
`equal` is the share of replies that are those of lockstep.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Any

import torch
import transformers

from benchmarks.lookup import Counted, llama
from benchmarks.readers import write
from memagent.core import Sampling
from memagent.models.continuous import ContinuousBatch
from memagent.models.sampler import Row, sample

COLUMNS = (
    "replies engine kind parameters dtype readings turns prompt tokens_out seconds passes rows against_generate"
    " against_lockstep equal repeats"
).split()
LENGTHS: dict[str, Callable[[random.Random], int]] = {
    "even": lambda draw: 64,
    "spread": lambda draw: draw.randint(8, 120),
    "gated": lambda draw: 3 if draw.random() < 0.9 else draw.randint(8, 120),
}


class CountedRows(Counted):
    """A model that counts the passes after prompts, and their rows."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.passes = self.rows = 0

    def __call__(self, **options: Any) -> Any:
        rows, tokens = options["input_ids"].shape
        self.passes, self.rows = self.passes + (tokens == 1), self.rows + (tokens == 1) * rows
        return self.model(**options)


class Engine:
    """What a batch needs of an engine, for turns that are rows already."""

    def __init__(self, model: Any) -> None:
        self.model, self.stop_ids, self.pad_id, self.batch_tokens, self.lock = model, frozenset[int](), 0, 1 << 20, Lock()

    def row(self, turn: Row) -> Row:
        return turn

    def completion(self, row: Row, seconds: float) -> Row:
        return row


def readings(kind: str, vocabulary: int, given: argparse.Namespace) -> list[list[Row]]:
    """The turns of each reading."""
    draw = random.Random(2)
    return [
        [
            Row(
                prompt=[draw.randrange(vocabulary) for _ in range(given.prompt)],
                max_tokens=LENGTHS[kind](draw),
                sampling=Sampling(),
            )
            for _ in range(given.turns)
        ]
        for _ in range(given.readings)
    ]


def by_generate(model: Any, of: Sequence[Sequence[Row]]) -> None:
    for rows in zip(*of, strict=True):
        longest = max(row.max_tokens for row in rows)
        made = model.model.generate(
            torch.tensor([row.prompt for row in rows]),
            max_new_tokens=longest,
            min_new_tokens=longest,
            do_sample=False,
            pad_token_id=0,
        )
        for row, ids in zip(rows, made.tolist(), strict=True):
            row.ids = ids[len(row.prompt) :][: row.max_tokens]


def by_lockstep(model: Any, of: Sequence[Sequence[Row]]) -> None:
    for rows in zip(*of, strict=True):
        sample(model, rows, stop_ids=frozenset(), pad_id=0)


def by_continuous(model: Any, of: Sequence[Sequence[Row]]) -> None:
    batch: Any = ContinuousBatch(Engine(model))  # type: ignore[arg-type]
    left = [iter(rows) for rows in of]
    for number, rows in enumerate(left):
        batch.add(number, next(rows))
    while ended := batch.step():
        for number, _ in ended:
            if (row := next(left[number], None)) is not None:
                batch.add(number, row)


ENGINES = {"generate": by_generate, "lockstep": by_lockstep, "continuous": by_continuous}


def measured(model: Any, kind: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each engine."""
    seconds: dict[str, list[float]] = {name: [] for name in ENGINES}
    counts: dict[str, CountedRows] = {}
    made: dict[str, list[list[int]]] = {}
    for _ in range(given.repeat):
        for name, run in ENGINES.items():
            of = readings(kind, model.config.vocab_size, given)
            counts[name] = CountedRows(model)
            began = time.perf_counter()
            run(counts[name], of)
            seconds[name].append(time.perf_counter() - began)
            made[name] = [row.ids for rows in of for row in rows]
    took = {name: median(times) for name, times in seconds.items()}
    expected = made["lockstep"]
    return [
        {
            "replies": kind,
            "engine": name,
            "kind": model.config.model_type,
            "parameters": sum(one.numel() for one in model.parameters()),
            "dtype": given.dtype,
            "readings": given.readings,
            "turns": given.turns,
            "prompt": given.prompt,
            "tokens_out": sum(map(len, made[name])),
            "seconds": round(took[name], 2),
            "passes": counts[name].passes or "",
            "rows": round(counts[name].rows / counts[name].passes, 1) if counts[name].passes else "",
            "against_generate": round(took["generate"] / took[name], 2),
            "against_lockstep": round(took["lockstep"] / took[name], 2),
            "equal": round(sum(map(list.__eq__, made[name], expected)) / len(expected), 3),
            "repeats": given.repeat,
        }
        for name in ENGINES
    ]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.continuous")
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--readings", type=int, default=32)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=300)
    parser.add_argument("--replies", nargs="+", choices=LENGTHS, default=list(LENGTHS))
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    if given.model is None:
        model = llama(given.hidden, given.layers, given.prompt + 121, given.dtype)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(given.model, dtype=given.dtype).eval()
    rows: list[dict[str, Any]] = []
    for kind in given.replies:
        rows += measured(model, kind, given)
        for row in rows[-len(ENGINES) :]:
            print(row, file=sys.stderr)
        write(given.out, COLUMNS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
