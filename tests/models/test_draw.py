"""A token is drawn from its row's stream alone, as often as its probability says, and rounding does not change it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memagent.models.draw import draw

WEIGHTS = st.lists(st.sampled_from([0.0, 0.0, 1e-30, 1e-9, 0.001, 0.03, 0.25]), min_size=1, max_size=40).filter(any)


def streams(count: int, seed: int = 0) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed + number) for number in range(count)]


def drawn(weights: list[float], times: int, seed: int = 0) -> list[float]:
    """How often each token comes, in `times` draws of one stream and as many of streams of their own."""
    [stream] = streams(1, seed)
    row = torch.tensor([weights])
    from_one = torch.cat([draw(row, [stream]) for _ in range(times)])
    from_each = draw(row.repeat(times, 1), streams(times, seed + 1))
    shares = torch.cat([from_one, from_each]).bincount(minlength=len(weights)) / (2 * times)
    return list(shares.tolist())


@given(weights=WEIGHTS, seed=st.integers(0, 2**32))
def test_a_token_of_no_probability_is_never_drawn(weights: list[float], seed: int) -> None:
    assert weights[int(draw(torch.tensor([weights]), streams(1, seed)))] > 0


@pytest.mark.parametrize(
    "weights",
    [
        [0.0, 0.1, 0.0, 0.6, 0.05, 0.25, 0.0],  # all of them run by themselves
        [0.1, 0.3, *[0.001] * 600],  # 600 that run as one
        [0.0, *[0.0015] * 600],  # all of them run as one
        [0.0, 10.0, 60.0, 30.0],  # no sum of 1
    ],
)
def test_tokens_come_as_often_as_their_probability_says(weights: list[float]) -> None:
    shares = drawn(weights, 10_000)
    expected = [weight / sum(weights) for weight in weights]
    assert shares == pytest.approx(expected, abs=0.012)
    half = len(weights) // 2
    assert sum(shares[:half]) == pytest.approx(sum(expected[:half]), abs=0.012)


@pytest.mark.parametrize("weights", [[0.5, 0.5], [0.9, *[0.001] * 100], [0.001] * 1000])
def test_a_draw_takes_one_number_of_the_stream_whichever_token_wins(weights: list[float]) -> None:
    used, expected = streams(50), streams(50)
    draw(torch.tensor([weights]).repeat(50, 1), used)
    for stream in expected:
        torch.randint(2**63 - 1, (), generator=stream)
    assert all(torch.equal(one.get_state(), other.get_state()) for one, other in zip(used, expected, strict=True))


def test_a_row_draws_the_same_whatever_else_is_in_the_batch() -> None:
    weights = torch.rand(6, 50, generator=torch.Generator().manual_seed(1)) / 25
    together = draw(weights, streams(6))
    assert together.tolist() == [int(draw(weights[[number]], streams(1, number))) for number in range(6)]
    assert len(set(together.tolist())) > 1


def test_probabilities_that_differ_a_little_give_the_same_tokens_but_for_as_many_as_they_must() -> None:
    """Two rows whose probabilities are d apart (half the sum of the differences) must differ in d of their draws; a race
    makes it no more than 2d."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4000, 1000, generator=generator)
    near = logits + 0.003 * torch.randn(logits.shape, generator=generator)
    probs, others = torch.softmax(logits, -1), torch.softmax(near, -1)
    apart = float((probs - others).abs().sum() / 2)  # of all rows: how many draws must differ
    changed = int((draw(probs, streams(4000)) != draw(others, streams(4000))).sum())
    assert 0 < changed <= 2 * apart + 4 * (2 * apart) ** 0.5
    assert apart < 10


def test_streams_stay_as_they_were_where_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, used, fresh = torch.full((4, 600), 1 / 600), streams(4), streams(4)

    def none_left(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr("memagent.models.draw._waits", none_left)
        with pytest.raises(torch.OutOfMemoryError):
            draw(weights, used)
    assert torch.equal(draw(weights, used), draw(weights, fresh))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_gpu_draws_what_a_cpu_draws() -> None:
    weights = torch.softmax(3 * torch.randn(64, 5000, generator=torch.Generator().manual_seed(0)), -1)
    assert draw(weights.cuda(), streams(64)).tolist() == draw(weights, streams(64)).tolist()
