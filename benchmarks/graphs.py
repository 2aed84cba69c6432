"""Supervised steps of a small model on a GPU: passes that are recorded as CUDA graphs against passes that are started anew.

    python -m benchmarks.graphs FOLDER [--steps 20] [--set FIELD=VALUE …]

The configuration is the stage `broad` of the recipe `embedded`. Both ways get the same batches, in turns; the first steps,
in which passes are recorded and libraries loaded, are not counted. On a CPU nothing is recorded: it says what slabs cost.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import torch
import typer

from memagent.training.config import SftConfig
from memagent.training.recipe import read_stage
from memagent.training.sft import Trainer

_FIRST = 5  # steps that are not counted
WAYS: dict[str, list[str]] = {"recorded": [], "started anew": ["graphs=0"]}


def main(
    start: Path,
    steps: int = 20,
    changes: Annotated[list[str], typer.Option("--set")] = [],  # noqa: B006
) -> None:
    """Prints tokens per second of both ways, and their ratio."""
    given = [f"start={start}", "stack=[]", "workers=0", *changes]
    ways = {name: read_stage("embedded:broad", SftConfig, [*given, *more])[0] for name, more in WAYS.items()}
    trainers = {name: Trainer(config, start) for name, config in ways.items()}
    seconds = dict.fromkeys(trainers, 0.0)
    tokens = 0
    for step in range(_FIRST + steps):
        batches = trainers["recorded"].make_step(step)
        for name in list(trainers)[:: 1 if step % 2 else -1]:
            began = time.perf_counter()
            trainers[name].train_step(batches)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if step >= _FIRST:
                seconds[name] += time.perf_counter() - began
        tokens += sum(batch.tokens for _, batch in batches) if step >= _FIRST else 0
    for name, taken in seconds.items():
        print(f"{name}: {tokens / taken:,.0f} tokens/s, {1000 * taken / steps:.0f} ms a step")
    print(f"ratio {seconds['started anew'] / seconds['recorded']:.2f}")


if __name__ == "__main__":
    typer.run(main)
