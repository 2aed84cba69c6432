"""A token is drawn from its row's stream alone, as often as its probability says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memagent.models.sampler import _place, draw

WEIGHTS = st.lists(st.sampled_from([0.0, 0.0, 1e-9, 0.03, 0.25, 1.0, 7.0]), min_size=1, max_size=40).filter(any)


def rows(count: int, seed: int = 0) -> list[SimpleNamespace]:
    return [SimpleNamespace(random=torch.Generator().manual_seed(seed + number)) for number in range(count)]


@given(weights=WEIGHTS, seed=st.integers(0, 2**32))
def test_a_number_of_the_stream_says_where_in_the_sum_the_token_lies(weights: list[float], seed: int) -> None:
    sums = torch.tensor(weights, dtype=torch.float64).cumsum(0)
    point = torch.rand(1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * sums[-1]
    token = int(draw(torch.tensor([weights]), rows(1, seed)))
    assert weights[token] > 0
    if (sums - point).abs().min() > 1e-6 * sums[-1]:  # otherwise rounding decides
        assert token == int(torch.searchsorted(sums, point, right=True))


def test_tokens_come_as_often_as_their_probability_says() -> None:
    weights = torch.tensor([[0.0, 1.0, 0.0, 6.0, 0.5, 2.5, 0.0]])
    stream = rows(1)
    drawn = torch.stack([draw(weights, stream)[0] for _ in range(20_000)]).bincount(minlength=7) / 20_000
    assert drawn.tolist() == pytest.approx((weights[0] / 10).tolist(), abs=0.012)


def test_a_row_draws_the_same_whatever_else_is_in_the_batch() -> None:
    weights = torch.rand(6, 50, generator=torch.Generator().manual_seed(1))
    together = draw(weights, rows(6))
    assert together.tolist() == [int(draw(weights[[number]], rows(1, number))) for number in range(6)]
    assert len(set(together.tolist())) > 1


def test_a_share_that_rounding_makes_1_lies_in_the_last_weight_that_there_is() -> None:
    places, within = _place(torch.tensor([[0.25, 0.5, 0.0], [1.0, 0.0, 0.0]]), torch.ones(2, 1, dtype=torch.float64))
    assert places.tolist() == [[1], [0]]
    assert within[:, 0].tolist() == pytest.approx([1.0, 1.0])
