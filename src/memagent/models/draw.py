"""A token for each of many rows from its probabilities, by the row's own stream of random numbers.

The tokens run a race: each arrives after an exponential time whose rate is its probability, and the first one is drawn (the
Gumbel-max trick, arXiv 1411.0030, section 2). The time of a token is a hash of it and of one number of the stream. So
probabilities that differ in their last digits, as they do in another batch or on another machine, change hardly more draws
than they must (`docs/decisions/0027-tokens-are-drawn-by-a-race.md`).

Shapes: N rows, V vocabulary, C likely tokens of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

# Tokens below it run as one, and then, where they have won, among themselves. A row has at most 512 others.
_LIKELY = 1 / 512
_AT_ONCE = 32  # rows whose others run at once: each takes some 50 bytes for a token of the vocabulary
# splitmix64 (doi.org/10.1145/2714064.2660195): the increment and the two factors, as signed numbers.
_STEP, _FIRST, _SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def draw(probs_NV: torch.Tensor, streams: Sequence[torch.Generator]) -> torch.Tensor:
    """A token [N] of every row from its probabilities [N, V], which need not sum to 1, by one number of its stream.

    The probabilities may be on a GPU, which draws what a CPU would: streams are those of a CPU. Where memory runs out, they
    stay as they were.

    (`torch.multinomial` takes one stream for all rows, or a call for each, which takes several times as long:
    `benchmarks/drawing.py`.)
    """
    states = [stream.get_state() for stream in streams]
    try:
        return _drawn(probs_NV, streams)
    except RuntimeError:
        for stream, state in zip(streams, states, strict=True):
            stream.set_state(state)
        raise


def _drawn(probs_NV: torch.Tensor, streams: Sequence[torch.Generator]) -> torch.Tensor:
    rows, vocabulary = probs_NV.shape
    seed_N = torch.stack([torch.randint(2**63 - 1, (), generator=stream) for stream in streams]).to(probs_NV.device)
    likely_NV = probs_NV >= _LIKELY
    rest_NV = probs_NV.masked_fill(likely_NV, 0)
    row_C, token_C = likely_NV.nonzero(as_tuple=True)
    row_C = torch.cat([row_C, torch.arange(rows, device=probs_NV.device)])
    rate_C = torch.cat([probs_NV[likely_NV], rest_NV.sum(-1)])
    token_C = torch.cat([token_C, torch.full((rows,), vocabulary, device=probs_NV.device)])
    time_C = _waits(seed_N[row_C], token_C) / rate_C
    first_N = time_C.new_full((rows,), torch.inf).scatter_reduce(0, row_C, time_C, "amin")
    won_C = time_C == first_N[row_C]
    token_N = torch.full_like(seed_N, vocabulary)
    token_N[row_C[won_C]] = token_C[won_C]
    for others_M in torch.split((token_N == vocabulary).nonzero()[:, 0], _AT_ONCE):
        time_MV = _waits(seed_N[others_M, None], torch.arange(vocabulary, device=probs_NV.device)) / rest_NV[others_M]
        token_N[others_M] = time_MV.argmin(-1)
    return token_N


def _waits(seed: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """Exponential times of rate 1, each from a seed and a number."""
    mixed = seed + (number + 1) * _STEP
    mixed = (mixed ^ _shifted(mixed, 30)) * _FIRST
    mixed = (mixed ^ _shifted(mixed, 27)) * _SECOND
    mixed = mixed ^ _shifted(mixed, 31)
    return -((_shifted(mixed, 11).double() + 0.5) * 2.0**-53).log()


def _shifted(bits: torch.Tensor, places: int) -> torch.Tensor:
    """Without the sign's bit being copied."""
    return (bits >> places) & ((1 << (64 - places)) - 1)


def nucleus(logits_NV: torch.Tensor, top_p_N: torch.Tensor) -> torch.Tensor:
    """What N tokens are drawn from [N, V]: the likeliest that reach top_p together (arXiv 1904.09751), not normalised."""
    probs_NV = torch.softmax(logits_NV, dim=-1)
    best_N, token_N = probs_NV.max(-1)
    cut_N = top_p_N < 1
    alone_N = cut_N & (best_N >= top_p_N)  # the likeliest reaches it by itself: nothing to sort
    probs_NV[alone_N] = 0.0
    probs_NV[alone_N, token_N[alone_N]] = 1.0
    for index in (cut_N & ~alone_N).nonzero()[:, 0].tolist():
        ordered_V, order_V = probs_NV[index].sort(descending=True)
        outside_V = ordered_V.cumsum(0) - ordered_V >= top_p_N[index]
        probs_NV[index] = torch.zeros_like(ordered_V).scatter(0, order_V, ordered_V.masked_fill(outside_V, 0.0))
    return probs_NV
