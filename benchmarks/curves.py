"""Two training runs on the same documents, batch by batch: python benchmarks/curves.py RUN OTHER [--after BATCH]"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean, stdev


def train(run: Path) -> dict[int, dict[str, float]]:
    """What a run logged of each batch."""
    logged = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return {one["step"]: one["train"] for one in logged if "train" in one}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs=2, type=Path, metavar="RUN")
    parser.add_argument("--after", type=int, default=0, help="leave out the batches up to this one")
    given = parser.parse_args()
    for run in given.runs:
        if not (run / "metrics.jsonl").is_file():
            parser.error(f"{run} is no training run: it has no metrics.jsonl")
    first, other = map(train, given.runs)
    batches = sorted(step for step in first.keys() & other.keys() if step > given.after)
    if len(batches) < 2:
        parser.error(f"the runs share {len(batches)} batches after {given.after}: two are needed")
    print(f"{len(batches)} batches; greatest difference, relative to the first run's value:")
    for name in first[batches[0]]:
        if all(name in run[step] for run in (first, other) for step in batches):
            pairs = [(first[step][name], other[step][name]) for step in batches]
            print(f"  {name}: {max(abs(a - b) / abs(a or b or 1) for a, b in pairs):.2g}")
    gained = [100 * (first[step]["reward"] - other[step]["reward"]) for step in batches]
    interval = 1.96 * stdev(gained) / len(gained) ** 0.5
    better = sum(value > 0 for value in gained)
    print(f"reward, first minus other: {mean(gained):+.1f} points (95 % ± {interval:.1f}), above 0 in {better}")


if __name__ == "__main__":
    main()
