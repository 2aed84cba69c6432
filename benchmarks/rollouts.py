"""Rollouts that check drafts of memories first, against rollouts without drafts, in turns within one process.

    python -m benchmarks.rollouts CONFIG [--set FIELD=VALUE …] [--tokens SHORTEST LONGEST] [--repeat 3] [--threads 1]

CONFIG is a file, or a stage of a recipe (RECIPE:STAGE); its start is a folder whose memagent.toml says `speculate = true`,
or "embedded". `--tokens` is the length of all documents, in place of that of each task. Both arms sample the same batches
with the same random streams. Prints the seconds of each batch, and the ratio of the sums; above 1 drafts are faster. What
was drawn is compared: replies must be the same but for rounding.
"""

from __future__ import annotations

import argparse
import math
import shutil
import tempfile
import time
from pathlib import Path

import torch

from memagent.models.open import model_folder
from memagent.training.config import read_config
from memagent.training.recipe import read_stage
from memagent.training.rl import Batch, Trainer
from memagent.training.rl_config import RlConfig


def replies(batch: Batch) -> list[tuple[int, ...]]:
    """The tokens of all conversations, in order."""
    return [tuple(one.reply) for reading in batch.readings for one in reading.trajectory.conversations]


def apart(ours: Batch, theirs: Batch) -> float:
    """The largest difference of the log-probabilities of equal replies."""
    pairs = zip(ours.readings, theirs.readings, strict=True)
    both = [
        (a, b)
        for one, other in pairs
        for a, b in zip(one.trajectory.conversations, other.trajectory.conversations, strict=False)
        if a.reply == b.reply
    ]
    return max((abs(x - y) for a, b in both for x, y in zip(a.logprobs, b.logprobs, strict=True)), default=math.nan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--set", dest="changes", action="append", default=[])
    parser.add_argument("--tokens", type=int, nargs=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    read = read_stage if ":" in given.config else read_config
    changes = [*given.changes, "validation.task=[]", "processes=1", f"threads={given.threads}"]
    config: RlConfig = read(given.config, RlConfig, changes)[0]
    if given.tokens:
        tasks = [task.model_copy(update={"tokens": tuple(given.tokens)}) for task in config.task]
        config = config.model_copy(update={"task": tasks})
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain"
        shutil.copytree(model_folder(config.start), plain)
        told = plain / "memagent.toml"
        if "speculate = true" not in told.read_text():
            raise SystemExit(f"{config.start} does not say `speculate = true`: there is nothing to compare")
        told.write_text(told.read_text().replace("speculate = true", "speculate = false"))
        starts = {"without": str(plain), "drafts": config.start}
        trainers = {
            name: Trainer(config.model_copy(update={"start": start}), Path(folder) / name) for name, start in starts.items()
        }
        sums = dict.fromkeys(starts, 0.0)
        for number in range(given.repeat):
            batches, said = {}, []
            for name in starts if number % 2 else reversed(starts):
                began = time.perf_counter()
                batches[name] = trainers[name].sample()
                took = time.perf_counter() - began
                trainers[name].step += 1
                sums[name] += took
                said.append(f"{name} {took:.1f} s")
            ours, theirs = batches["drafts"], batches["without"]
            same = sum(a == b for a, b in zip(replies(ours), replies(theirs), strict=False))
            print(
                f"batch {number}: {', '.join(said)}, {theirs.tokens:,} tokens, {same:,} of {len(replies(theirs)):,} replies"
                f" the same, log-probabilities by {apart(ours, theirs):.1e}",
                flush=True,
            )
    print(f"{sums['without'] / sums['drafts']:.2f} times as fast with drafts")


if __name__ == "__main__":
    main()
