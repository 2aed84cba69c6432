"""A token for each of many rows, each from a stream of its own: drawn at once, and by a call of PyTorch for each row.

    python -m benchmarks.drawing [--rows 192] [--vocabulary 4096] [--repeat 20]

The two take turns, with one thread. Prints milliseconds of the fastest of --repeat draws, and their ratio: where every row
has a token of some 99 %, as nearly all steps of a trained reader have, and where the probability is spread.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

import torch

from benchmarks.training import fastest
from memagent.models.draw import draw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=192)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--repeat", type=int, default=20)
    given = parser.parse_args()
    torch.set_num_threads(1)
    streams = [torch.Generator().manual_seed(number) for number in range(given.rows)]
    for name, likeliest in ("a likely token", 18), ("spread", 0):
        logits = torch.randn(given.rows, given.vocabulary)
        logits[:, 7] += likeliest
        probs = torch.softmax(logits, -1)
        ours, theirs = fastest(given.repeat, partial(draw, probs, streams), partial(one_by_one, probs, streams))
        print(f"{name}: at once {1000 * ours:.1f} ms, one by one {1000 * theirs:.1f} ms, ratio {theirs / ours:.1f}")


def one_by_one(probs: torch.Tensor, streams: Sequence[torch.Generator]) -> torch.Tensor:
    drawn = [torch.multinomial(row, 1, generator=stream) for row, stream in zip(probs, streams, strict=True)]
    return torch.cat(drawn)


if __name__ == "__main__":
    main()
