"""A batch of reinforcement learning by one process and by several with the same weights, in turns.

    python -m benchmarks.processes CONFIG [--set FIELD=VALUE …] [--processes 2] [--repeat 3]

CONFIG is a file, or a stage of a recipe (RECIPE:STAGE). Each process has one thread. Prints seconds of the fastest of
--repeat batches, and ratios; above 1 several processes are faster. Rewards and gradients of both are compared: they must be
the same but for rounding.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import torch

from memagent.training.config import read_config
from memagent.training.recipe import read_stage
from memagent.training.rl import Trainer
from memagent.training.rl_config import RlConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--set", dest="changes", action="append", default=[])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    read = read_stage if ":" in given.config else read_config
    config: RlConfig = read(given.config, RlConfig, [*given.changes, "validation.task=[]"])[0]
    taken: dict[tuple[str, int], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        counts = (1, given.processes)
        trainers = [Trainer(config.model_copy(update={"processes": count}), Path(folder) / str(count)) for count in counts]
        for number in range(given.repeat + 1):  # the first batch waits for the helpers to start
            found = []
            for count, trainer in zip(counts, trainers, strict=True):
                began = time.perf_counter()
                batch = trainer.sample()
                sampled = time.perf_counter()
                steps = trainer.learn(batch)
                if number:
                    taken["rollout", count].append(sampled - began)
                    taken["update", count].append(time.perf_counter() - sampled)
                trainer.step += 1
                found.append((batch.tokens, [reading.trajectory.reward for reading in batch.readings], steps))
            (tokens, rewards, ours), (_, others, theirs) = found
            changed = sum(one != other for one, other in zip(rewards, others, strict=True))
            apart = max(
                (abs(a.grad_norm / b.grad_norm - 1) for a, b in zip(ours, theirs, strict=True) if b.grad_norm),
                default=math.nan,
            )
            print(f"batch {number}: {tokens:,} tokens, {changed} of {len(rewards)} rewards differ, norms by {apart:.1e}")
        for trainer in trainers:
            trainer.helpers.close()
    print(f"\n| what | 1 process | {given.processes} processes | ratio |\n|---|---|---|---|")
    for what in ("rollout", "update"):
        one, several = (min(taken[what, count]) for count in counts)
        print(f"| {what} | {one:.1f} s | {several:.1f} s | {one / several:.2f} |")
    one, several = (sum(min(taken[what, count]) for what in ("rollout", "update")) for count in counts)
    print(f"| both | {one:.1f} s | {several:.1f} s | {one / several:.2f} |")


if __name__ == "__main__":
    main()
