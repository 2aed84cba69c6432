"""The clipped objective: numbers from paper, the equations word for word, and what padding may never do."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from memagent.training.loss import Objective, Statistics, Weights, policy_loss

PLAIN = Objective(clip_low=0.2, clip_high=0.28)


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def weights(
    mask: Sequence[Sequence[int]],
    advantages: Sequence[float],
    counts: Sequence[float] | None = None,
    shares: Sequence[float] | None = None,
) -> Weights:
    """One advantage to a row; every token weighs 1 if nothing else is said."""
    return Weights(
        mask_NR=torch.tensor(mask, dtype=torch.bool),
        up_N1=column(*(max(value, 0.0) for value in advantages)),
        down_N1=column(*(min(value, 0.0) for value in advantages)),
        count_N1=column(*(counts or [1.0] * len(advantages))),
        share_N1=column(*(shares or [1.0] * len(advantages))),
    )


@dataclass
class Token:
    """What the objective says of one token with ratio r, advantage A, entropy H, and log π_ref - log π = d."""

    loss: float
    slope: float  # of the loss with respect to the token's log-probability
    entropy_slope: float
    statistics: dict[str, float]


def one_token(
    objective: Objective, ratio: float, advantage: float, *, entropy: float = 0.0, d: float | None = None
) -> Token:
    old = torch.tensor([[-2.0]], dtype=torch.float64)
    logprob = (old + math.log(ratio)).requires_grad_()
    spread = torch.tensor([[entropy]], dtype=torch.float64, requires_grad=True)
    reference = None if d is None else logprob.detach() + d
    statistics = Statistics()
    loss = policy_loss(objective, weights([[1]], [advantage]), logprob, old, spread, reference, statistics)
    loss.backward()  # type: ignore[no-untyped-call]
    assert logprob.grad is not None
    slope = 0.0 if spread.grad is None else spread.grad.item()
    return Token(loss.item(), logprob.grad.item(), slope, statistics.mean())


# The loss is -min(r A, clip(r, 0.8, 1.28) A), its slope is -r A where the first is the smaller, else 0 (dr/dlog π = r).
@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (0.5, 2.0, -1.0, -1.0),  # min(0.5 * 2, 0.8 * 2) = 1.0: below the range a good token is not held
        (1.1, 2.0, -2.2, -2.2),  # min(1.1 * 2, 1.1 * 2) = 2.2
        (1.5, 2.0, -2.56, 0.0),  # min(1.5 * 2, 1.28 * 2) = 2.56: clipped
        (0.5, -3.0, 2.4, 0.0),  # min(0.5 * -3, 0.8 * -3) = -2.4: clipped
        (0.9, -3.0, 2.7, 2.7),  # min(0.9 * -3, 0.9 * -3) = -2.7
        (1.5, -3.0, 4.5, 4.5),  # min(1.5 * -3, 1.28 * -3) = -4.5: above the range a bad token is not held
    ],
)
def test_the_clipped_objective_is_what_paper_says(ratio: float, advantage: float, loss: float, slope: float) -> None:
    token = one_token(PLAIN, ratio, advantage)
    assert token.loss == pytest.approx(loss)
    assert token.slope == pytest.approx(slope)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (5.0, -2.0, 6.0, 0.0),  # max(min(-10, -2.56), 3 * -2) = -6
        (2.0, -2.0, 4.0, 4.0),  # max(-4, -6) = -4: the ratio is below c
        (0.5, -2.0, 1.6, 0.0),  # max(0.8 * -2, -6) = -1.6: clipped below as ever
        (5.0, 2.0, -2.56, 0.0),  # good tokens have no dual clip
    ],
)
def test_the_dual_clip_bounds_what_a_bad_token_costs(ratio: float, advantage: float, loss: float, slope: float) -> None:
    token = one_token(Objective(clip_low=0.2, clip_high=0.28, dual_clip=3.0), ratio, advantage)
    assert token.loss == pytest.approx(loss)
    assert token.slope == pytest.approx(slope)


@pytest.mark.parametrize("d", [-0.7, -0.1, 0.0, 0.1, 0.7])
def test_the_penalty_is_the_k3_estimate_and_pulls_towards_the_reference(d: float) -> None:
    # β (e^d - d - 1) in the loss; its slope in log π is β (1 - e^d), as d falls where log π rises.
    token = one_token(Objective(kl=0.5), 1.0, 0.0, d=d)
    assert token.loss == pytest.approx(0.5 * (math.exp(d) - d - 1))
    assert token.loss >= 0
    assert token.slope == pytest.approx(0.5 * (1 - math.exp(d)))
    if d:  # where the reference is more likely, a step down the slope raises log π, and the other way round
        assert math.copysign(1, -token.slope) == math.copysign(1, d)


def test_the_penalty_is_that_of_the_paper_in_numbers() -> None:
    # π_ref = 2 π: e^d = 2, so 2 - ln 2 - 1 = 0.306853
    assert one_token(Objective(kl=1.0), 1.0, 0.0, d=math.log(2)).loss == pytest.approx(0.306853, abs=1e-6)


def test_an_entropy_bonus_lowers_the_loss_where_the_policy_is_undecided() -> None:
    token = one_token(Objective(entropy=0.25), 1.0, 0.0, entropy=1.5)
    assert token.loss == pytest.approx(-0.375)
    assert token.entropy_slope == pytest.approx(-0.25)


def test_without_a_bonus_the_entropy_is_only_looked_at() -> None:
    token = one_token(Objective(entropy=0.0), 1.0, 0.0, entropy=1.5)
    assert (token.loss, token.entropy_slope) == (0.0, 0.0)
    assert token.statistics["entropy"] == pytest.approx(1.5)


def reference_loss(
    objective: Objective,
    advantages: Sequence[float],
    logprob: Tensor,
    old: Tensor,
    entropy: Tensor,
    reference: Tensor | None,
    mask: Tensor,
    share: Sequence[float],
) -> Tensor:
    """-Σ share (C - β KL + α H) token by token, as it is published (arXiv 2507.02259 §3.2, 2503.14476 §3, 1912.09729)."""
    total = torch.zeros((), dtype=torch.float64)
    for i, value in enumerate(advantages):
        for t in range(logprob.shape[1]):
            if not mask[i, t]:
                continue
            r = torch.exp(logprob[i, t] - old[i, t])
            clipped = torch.clip(r, 1 - objective.clip_low, 1 + objective.clip_high)
            surrogate = torch.min(r * value, clipped * value)
            if objective.dual_clip and value < 0:
                surrogate = torch.max(surrogate, torch.tensor(objective.dual_clip * value, dtype=torch.float64))
            if reference is not None:
                q = torch.exp(reference[i, t] - logprob[i, t])
                surrogate = surrogate - objective.kl * (q - torch.log(q) - 1)
            total = total - share[i] * (surrogate + objective.entropy * entropy[i, t])
    return total


OPTIONS = list(itertools.product((0.0, 2.0), (0.0, 0.3), (0.0, 0.1)))


@pytest.mark.parametrize(("dual_clip", "kl", "entropy_weight"), OPTIONS)
def test_loss_and_gradient_are_those_of_the_published_equations(dual_clip: float, kl: float, entropy_weight: float) -> None:
    objective = Objective(clip_low=0.15, clip_high=0.3, dual_clip=dual_clip, kl=kl, entropy=entropy_weight)
    rng = random.Random(7)
    rows, width = 6, 5
    draw = torch.Generator().manual_seed(3)

    def noise(scale: float) -> Tensor:
        return torch.randn(rows, width, dtype=torch.float64, generator=draw) * scale

    advantages = [rng.uniform(-1, 1) for _ in range(rows)]
    share = [rng.uniform(0.01, 0.1) for _ in range(rows)]
    mask = torch.tensor([[step < rng.randint(1, width) or not step for step in range(width)] for _ in range(rows)])
    old = -noise(1.0).abs()
    start, spread = old + noise(0.7), noise(1.0).abs()
    reference = old + noise(0.5) if kl else None

    def run(function: Any) -> tuple[float, Tensor, Tensor]:
        logprob, entropy = start.clone().requires_grad_(), spread.clone().requires_grad_()
        loss = function(logprob, entropy)
        loss.backward()
        assert logprob.grad is not None
        return loss.item(), logprob.grad, torch.zeros_like(spread) if entropy.grad is None else entropy.grad

    made = weights(mask.tolist(), advantages, shares=share)
    loss, slope, bonus = run(lambda logprob, entropy: policy_loss(objective, made, logprob, old, entropy, reference))
    expected, expected_slope, expected_bonus = run(
        lambda logprob, entropy: reference_loss(objective, advantages, logprob, old, entropy, reference, mask, share)
    )
    assert loss == pytest.approx(expected, abs=1e-12)
    torch.testing.assert_close(slope, expected_slope, atol=1e-12, rtol=0)
    torch.testing.assert_close(bonus, expected_bonus, atol=1e-12, rtol=0)
    assert slope.abs().sum() > 0


@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 1e30])
def test_padding_changes_neither_the_loss_nor_any_gradient_whatever_it_holds(junk: float) -> None:
    objective = Objective(dual_clip=3.0, kl=0.1, entropy=0.1)
    mask = [[1, 1, 0], [1, 0, 0]]
    old = torch.tensor([[-1.0, -2.0, 0.0], [-0.5, 0.0, 0.0]])
    padding = ~torch.tensor(mask, dtype=torch.bool)

    def run(fill: float) -> tuple[float, Tensor, Tensor]:
        logprob = (old + 0.1).masked_fill(padding, fill).requires_grad_()
        entropy = torch.ones(2, 3).masked_fill(padding, fill).requires_grad_()
        given = old.masked_fill(padding, fill), (old - 0.2).masked_fill(padding, -fill)
        loss = policy_loss(objective, weights(mask, [1.0, -1.0]), logprob, given[0], entropy, given[1])
        loss.backward()  # type: ignore[no-untyped-call]
        assert logprob.grad is not None
        assert entropy.grad is not None
        return loss.item(), logprob.grad, entropy.grad

    loss, slope, bonus = run(junk)
    clean, clean_slope, clean_bonus = run(0.0)
    assert loss == clean
    assert torch.equal(slope, clean_slope)
    assert torch.equal(bonus, clean_bonus)
    assert not slope[padding].any()
    assert slope[~padding].all()


def test_a_longer_rectangle_does_not_change_the_loss() -> None:
    old = torch.tensor([[-1.0, -2.0]], dtype=torch.float64)
    short = policy_loss(PLAIN, weights([[1, 1]], [1.0]), old + 0.1, old, torch.zeros(1, 2))
    wide = torch.cat([old, torch.full((1, 3), -9.0, dtype=torch.float64)], dim=1)
    long = policy_loss(PLAIN, weights([[1, 1, 0, 0, 0]], [1.0]), wide + 0.1, wide, torch.zeros(1, 5))
    assert short.item() == pytest.approx(long.item())


def test_the_losses_of_the_rows_of_an_update_add_up() -> None:
    old = torch.tensor([[-1.0, -2.0], [-0.5, -0.1]], dtype=torch.float64)
    logprob, entropy = old + torch.tensor([[0.1, 0.5], [-0.4, 0.2]], dtype=torch.float64), torch.zeros(2, 2)
    whole = policy_loss(PLAIN, weights([[1, 1], [1, 1]], [1.0, -1.0], shares=[0.2, 0.3]), logprob, old, entropy)
    apart = [
        policy_loss(PLAIN, weights([[1, 1]], [value], shares=[share]), logprob[i : i + 1], old[i : i + 1], entropy[:1])
        for i, (value, share) in enumerate([(1.0, 0.2), (-1.0, 0.3)])
    ]
    assert whole.item() == pytest.approx(sum(part.item() for part in apart))


def test_statistics_are_means_over_tokens_with_equal_conversations_counted_apart() -> None:
    # Row 1 stands for one conversation of two tokens, A = +1; row 2 for three conversations of one token, A = -1.
    mask = [[1, 1], [1, 0]]
    ratio = torch.tensor([[1.0, 2.0], [0.5, 9.0]], dtype=torch.float64)
    old = torch.full((2, 2), -1.0, dtype=torch.float64)
    entropy = torch.tensor([[0.1, 0.3], [0.4, 9.0]], dtype=torch.float64)
    d = torch.tensor([[0.0, math.log(2)], [0.0, 9.0]], dtype=torch.float64)
    logprob, statistics = old + ratio.log(), Statistics()
    given = weights(mask, [1.0, -1.0], counts=[1.0, 3.0])
    policy_loss(Objective(kl=0.1), given, logprob, old, entropy, logprob + d, statistics)
    assert statistics.tokens == 5
    mean = statistics.mean()
    assert mean["ratio"] == pytest.approx((1.0 + 2.0 + 3 * 0.5) / 5)
    assert mean["clip_high"] == pytest.approx(1 / 5)  # 2.0 > 1.28, on a good token
    assert mean["clip_low"] == pytest.approx(3 / 5)  # 0.5 < 0.8, on a bad one
    assert mean["kl"] == pytest.approx(0.306853 / 5, abs=1e-6)
    assert mean["entropy"] == pytest.approx((0.1 + 0.3 + 3 * 0.4) / 5)


@pytest.mark.parametrize(
    ("ratio", "advantage", "high", "low"),
    [(2.0, 1.0, 1, 0), (2.0, -1.0, 0, 0), (0.5, 1.0, 0, 0), (0.5, -1.0, 0, 1), (1.0, 1.0, 0, 0), (5.0, 0.0, 0, 0)],
)
def test_a_token_counts_as_clipped_only_where_its_gradient_is_gone(
    ratio: float, advantage: float, high: float, low: float
) -> None:
    token = one_token(PLAIN, ratio, advantage)
    assert (token.statistics["clip_high"], token.statistics["clip_low"]) == (high, low)
    assert (token.slope == 0) == bool(high or low or not advantage)


def test_statistics_of_several_batches_are_those_of_all_their_tokens() -> None:
    first, second = Statistics(), Statistics()
    first.add(torch.ones(1, 3), ratio=torch.tensor([[1.0, 1.0, 1.0]]))
    second.add(torch.ones(1, 1), ratio=torch.tensor([[3.0]]))
    first += second
    assert first.tokens == 4
    assert first.mean() == {"ratio": 1.5}
    assert Statistics().mean() == {}


def test_padding_does_not_reach_the_statistics_whatever_it_holds() -> None:
    old, entropy, statistics = torch.tensor([[-1.0, math.nan]]), torch.tensor([[0.5, math.nan]]), Statistics()
    policy_loss(PLAIN, weights([[1, 0]], [1.0]), old, old, entropy, None, statistics)
    assert statistics.mean() == {"ratio": 1.0, "clip_high": 0.0, "clip_low": 0.0, "kl": 0.0, "entropy": 0.5}


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_ratio_too_large_for_a_float_is_clipped_as_any_other(advantage: float) -> None:
    old = torch.tensor([[-120.0]])
    logprob = torch.tensor([[-1.0]], requires_grad=True)
    objective = Objective(dual_clip=3.0)
    loss = policy_loss(objective, weights([[1]], [advantage]), logprob, old, torch.zeros(1, 1))
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(-1.28 if advantage > 0 else 3.0)
    assert logprob.grad is not None
    assert logprob.grad.item() == 0
