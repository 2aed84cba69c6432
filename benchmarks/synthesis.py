"""How fast samples are made: tokens of document per second on one core, against tokenizing the same documents.

    python benchmarks/synthesis.py

Every row reads the book and counts its tokens anew. The baseline counts the tokens of one document, as a maker without an
index would have to for each.
Memory is the peak of this process, as the system counts it.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from functools import partial
from pathlib import Path

from memagent.models.open import open_tokenizer
from memagent.tasks.files import SampleFile
from memagent.tasks.synthesis import Recipe, write_samples

ROWS = (
    ("niah_single_2", 65_536, 100),
    ("niah_single_2", 4_000_000, 10),
    ("niah_multikey_2", 65_536, 10),
    ("multihop", 65_536, 100),
)


def measure(task: str, tokens: int, samples: int, shared: bool, tokenizer: str) -> str:
    recipe = Recipe(
        tasks=(task,), tokens=(tokens,), samples=samples, tokenizer=partial(open_tokenizer, tokenizer), shared=shared
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.jsonl"
        began = time.process_time()
        write_samples(recipe, path)
        made = time.process_time() - began
        sample = next(iter(SampleFile.open(path)))
        text = str(sample.document)
        began = time.process_time()
        count = open_tokenizer(tokenizer).count(text)
        counting = time.process_time() - began
        size = sum(one.stat().st_size for one in Path(folder).iterdir())
    speed, baseline = tokens * samples / made, count / counting
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"| {task} | {tokens:,} × {samples} | {'shared' if shared else 'inline'} | {made:.2f} s | {speed / 1e6:.2f} M/s |"
        f" {speed / baseline:.1f} × | {size / 1e6:.1f} MB | {peak:.0f} MB |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how fast samples are made.")
    parser.add_argument("--tokenizer", default="embedded")
    options = parser.parse_args()
    print("| task | tokens × samples | documents | CPU time | tokens | over counting them | files | peak memory |")
    print("|---|---|---|---|---|---|---|---|")
    for task, tokens, samples in ROWS:
        for shared in (True, False):
            if shared or tokens * samples < 20_000_000:
                print(measure(task, tokens, samples, shared, options.tokenizer), flush=True)


if __name__ == "__main__":
    main()
