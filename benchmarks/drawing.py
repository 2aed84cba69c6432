"""A token for each of many rows, each from a stream of its own: drawn at once, and by a call of PyTorch for each row.

    python -m benchmarks.drawing [--rows 192] [--vocabulary 4096] [--repeat 20]

The two take turns, with one thread. Prints milliseconds of the fastest of --repeat draws, and their ratio.
"""

from __future__ import annotations

import argparse

import torch

from benchmarks.training import fastest
from memagent.core import Sampling
from memagent.models.sampler import Row, draw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=192)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--repeat", type=int, default=20)
    given = parser.parse_args()
    torch.set_num_threads(1)
    sampling = [Sampling(temperature=1.0, seed=number) for number in range(given.rows)]
    rows = [Row(prompt=[0], max_tokens=1, sampling=one) for one in sampling]
    probs = torch.softmax(3 * torch.randn(given.rows, given.vocabulary), -1)

    def one_by_one() -> torch.Tensor:
        drawn = [torch.multinomial(probs_V, 1, generator=row.random) for row, probs_V in zip(rows, probs, strict=True)]
        return torch.cat(drawn)

    ours, theirs = fastest(given.repeat, lambda: draw(probs, rows), one_by_one)
    print(f"at once {1000 * ours:.1f} ms, one by one {1000 * theirs:.1f} ms: {theirs / ours:.1f} times as fast")


if __name__ == "__main__":
    main()
