"""The clipped objective of Multi-Conv DAPO over rows of tokens (arXiv 2507.02259, §3.2).

    r   = π(o_t) / π_old(o_t)
    C   = min(r·A, clip(r, 1−ε_low, 1+ε_high)·A)        for A < 0 with dual clip c: max(C, c·A)
    L   = −Σ share·(C − β·KL + α·H)                      KL = e^d − d − 1, d = log π_ref − log π (k3)

Shapes: N rows, R tokens of the longest reply. A row may stand for several equal conversations (credit.merge).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

# Of a difference of log-probabilities: e^20 is far outside any clip, and far inside a float.
_LARGEST = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """ε_low, ε_high; c of the dual clip (0: none); β of the KL penalty; α of the entropy bonus."""

    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What is known of rows before the model runs. mask_NR is True where there is a token; the others are [N, 1]."""

    mask_NR: Tensor
    up_N1: Tensor
    down_N1: Tensor
    count_N1: Tensor
    share_N1: Tensor


@dataclass(slots=True)
class Statistics:
    """Sums over the tokens of equal conversations counted apart. `mean` divides by their number."""

    tokens: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, count_NR: Tensor, **values_NR: Tensor) -> None:
        self.tokens += float(count_NR.sum())
        for name, value in values_NR.items():
            counted = (count_NR * value).masked_fill(count_NR == 0, 0.0)
            self.sums[name] = self.sums.get(name, 0.0) + float(counted.double().sum())

    def __iadd__(self, other: Statistics) -> Statistics:
        self.tokens += other.tokens
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        return self

    def mean(self) -> dict[str, float]:
        return {name: total / max(1.0, self.tokens) for name, total in self.sums.items()}


def policy_loss(
    objective: Objective,
    weights: Weights,
    logprob_NR: Tensor,
    old_NR: Tensor,
    entropy_NR: Tensor,
    reference_NR: Tensor | None = None,
    statistics: Statistics | None = None,
) -> Tensor:
    """The loss of some rows of an update, a scalar: those of all its rows add up. Where mask is False nothing counts."""
    mask = weights.mask_NR
    ratio = torch.exp((logprob_NR - old_NR).masked_fill(~mask, 0.0).clamp(-_LARGEST, _LARGEST))
    kept_up = torch.clamp(ratio, max=1 + objective.clip_high)
    kept_down = torch.clamp(ratio, min=1 - objective.clip_low)
    if objective.dual_clip:
        kept_down = torch.clamp(kept_down, max=objective.dual_clip)
    gain = weights.up_N1 * kept_up + weights.down_N1 * kept_down
    if reference_NR is not None:
        distance = (reference_NR - logprob_NR).masked_fill(~mask, 0.0).clamp(-_LARGEST, _LARGEST)
        divergence = torch.exp(distance) - distance - 1
        gain = gain - objective.kl * weights.count_N1 * divergence
    else:
        divergence = torch.zeros_like(ratio)
    if objective.entropy:
        gain = gain + objective.entropy * weights.count_N1 * entropy_NR
    if statistics is not None:
        with torch.no_grad():
            # A row that stands for conversations of both signs is clipped for one part of them, by their advantages.
            size_N1 = (weights.up_N1 - weights.down_N1).clamp(min=1e-12)
            statistics.add(
                weights.count_N1 * mask,
                ratio=ratio,
                clip_high=(kept_up < ratio) * weights.up_N1 / size_N1,
                clip_low=(kept_down != ratio) * -weights.down_N1 / size_N1,
                kl=divergence,
                entropy=entropy_NR,
            )
    return -(gain * weights.share_N1).masked_fill(~mask, 0.0).sum()
