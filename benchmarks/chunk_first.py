"""Several questions on one chunk: the chunk first, and so computed once, against the question first.

    python -m benchmarks.chunk_first OUT.csv [--hidden 512] [--layers 8] [--chunk 1024] [--rest 160] [--reply 32]
        [--questions 1 4 8 16] [--repeat 5] [--threads 1] [--dtype float32]

A Llama with random weights replies to one turn of each question, as the engine in process runs it. A prompt is a chunk of
so many tokens, which all have in common, and `--rest` tokens of its own (question, memory and instructions, of unlike
length), before it or after it. Orders take turns, each as often the first; seconds are the median of whole calls. `equal`
is the share of replies that are those of each prompt alone.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.lookup import llama
from benchmarks.readers import write
from memagent.core import Sampling
from memagent.models.sampler import Row, sample

COLUMNS = "first parameters dtype questions chunk rest reply seconds against_question_first equal repeats".split()
_VOCABULARY = 8192


def prompts(questions: int, chunk: int, rest: int, *, chunk_first: bool) -> list[list[int]]:
    """One prompt for each question. What is a question's own is up to a tenth shorter than `rest`."""
    draw = random.Random(1)
    shown = [draw.randrange(_VOCABULARY) for _ in range(chunk)]
    own = [[draw.randrange(_VOCABULARY) for _ in range(rest - draw.randrange(1 + rest // 10))] for _ in range(questions)]
    return [[*shown, *one] if chunk_first else [*one, *shown] for one in own]


def replies(model: Any, given: Sequence[Sequence[int]], reply: int) -> list[list[int]]:
    rows = [Row(prompt=prompt, max_tokens=reply, sampling=Sampling()) for prompt in given]
    sample(model, rows, stop_ids=frozenset(), pad_id=0)
    return [row.ids for row in rows]


def measured(model: Any, questions: int, given: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each order."""
    asked = {
        name: prompts(questions, given.chunk, given.rest, chunk_first=name == "chunk") for name in ("question", "chunk")
    }
    seconds: dict[str, list[float]] = {name: [] for name in asked}
    made: dict[str, list[list[int]]] = {}
    order = list(asked)
    for number in range(given.repeat + 1):
        order.reverse()
        for name in order:
            began = time.perf_counter()
            made[name] = replies(model, asked[name], given.reply)
            if number:
                seconds[name].append(time.perf_counter() - began)
    alone = {name: [replies(model, [prompt], given.reply)[0] for prompt in asked[name]] for name in asked}
    took = {name: median(times) for name, times in seconds.items()}
    return [
        {
            "first": name,
            "parameters": sum(one.numel() for one in model.parameters()),
            "dtype": given.dtype,
            "questions": questions,
            "chunk": given.chunk,
            "rest": given.rest,
            "reply": given.reply,
            "seconds": round(took[name], 3),
            "against_question_first": round(took["question"] / took[name], 2),
            "equal": round(sum(map(list.__eq__, made[name], alone[name])) / questions, 3),
            "repeats": given.repeat,
        }
        for name in asked
    ]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.chunk_first")
    parser.add_argument("out", type=Path)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--chunk", type=int, default=1024)
    parser.add_argument("--rest", type=int, default=160)
    parser.add_argument("--reply", type=int, default=32)
    parser.add_argument("--questions", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    model = llama(given.hidden, given.layers, given.chunk + given.rest + given.reply + 1, given.dtype)
    rows: list[dict[str, Any]] = []
    for questions in given.questions:
        rows += measured(model, questions, given)
        for row in rows[-2:]:
            print(row, file=sys.stderr)
    write(given.out, COLUMNS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
