"""What room in the cache of keys and values is worth: steps of decoding with it, and with a copy of the cache for each.

    python -m benchmarks.cache_room OUT.csv [--hidden 512] [--layers 8] [--batch 32 8] [--prompt 200 900] [--steps 40]
        [--repeat 4] [--threads 1] [--dtype float32]

A Llama with random weights; the two take turns. Milliseconds are the median of the means of whole runs, prompts left out.
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
from memagent.models import cache
from memagent.models.sampler import Row, Running

COLUMNS = "parameters dtype batch prompt steps with_room without times_as_fast repeats".split()
_VOCABULARY = 8192
ROOM, NONE = (cache._ROOM, cache._LEAST), (sys.maxsize, 0)


def step(model: Any, prompts: Sequence[Sequence[int]], steps: int, room: tuple[int, int]) -> float:
    """Milliseconds of a step."""
    cache._ROOM, cache._LEAST = room
    running = Running(model, stop_ids=frozenset(), pad_id=0)
    running.join([Row(prompt=prompt, max_tokens=steps + 1, sampling=Sampling()) for prompt in prompts])
    began = time.perf_counter()
    while running.rows:
        running.step()
    return 1000 * (time.perf_counter() - began) / steps


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.cache_room")
    parser.add_argument("out", type=Path)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 8])
    parser.add_argument("--prompt", type=int, nargs="+", default=[200, 900])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    rows = []
    for batch, prompt in zip(given.batch, given.prompt, strict=True):
        model, draw = llama(given.hidden, given.layers, prompt + given.steps + 1, given.dtype), random.Random(0)
        prompts = [[draw.randrange(_VOCABULARY) for _ in range(prompt)] for _ in range(batch)]
        took = [[step(model, prompts, given.steps, room) for room in (ROOM, NONE)] for _ in range(given.repeat)]
        roomy, copied = map(median, zip(*took, strict=True))
        made = [sum(one.numel() for one in model.parameters()), given.dtype, batch, prompt, given.steps]
        made += [round(roomy, 1), round(copied, 1), round(copied / roomy, 2), given.repeat]
        rows.append(dict(zip(COLUMNS, made, strict=True)))
        print(rows[-1], file=sys.stderr)
    write(given.out, COLUMNS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
