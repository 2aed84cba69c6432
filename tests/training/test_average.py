"""The average of weights: what it follows, where it stands in, and what a stop must not change."""

from __future__ import annotations

import pytest
import torch

from memagent.errors import TrainingError
from memagent.training.average import Average


def parameter(*values: float) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor(values))


def test_it_follows_the_weights_quickly_at_first_and_then_with_its_decay() -> None:
    weight = parameter(0.0)
    average, by_hand = Average([weight], 0.9), 0.0
    for step in range(200):
        with torch.no_grad():
            weight.fill_(float(step))
        average.follow()
        decay = min(0.9, (1 + step) / (10 + step))
        by_hand = decay * by_hand + (1 - decay) * step
    with average.in_place():
        assert weight.item() == pytest.approx(by_hand, rel=1e-5)
        assert weight.item() == pytest.approx(199 - 9, abs=0.1)  # decay / (1 − decay) steps behind
    assert weight.item() == 199


def test_without_a_decay_the_weights_stand_for_themselves() -> None:
    weight = parameter(1.0, 2.0)
    average = Average([weight], 0.0)
    average.follow()
    with average.in_place():
        assert weight.tolist() == [1.0, 2.0]
        with torch.no_grad():
            weight.add_(1)
    assert weight.tolist() == [2.0, 3.0]


def test_the_weights_come_back_when_the_block_fails() -> None:
    weight = parameter(1.0)
    average = Average([weight], 0.5)
    with torch.no_grad():
        weight.fill_(5)
    seen = []

    def fail() -> None:
        with average.in_place():
            seen.append(weight.item())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (seen, weight.item()) == ([1.0], 5.0)


def test_a_restored_average_goes_on_as_one_that_was_never_stopped() -> None:
    weight, other = parameter(1.0), parameter(1.0)
    one, two = Average([weight], 0.9), Average([other], 0.9)
    for step in range(6):
        if step == 3:
            state = one.state()
            one = Average([weight], 0.9)
            one.restore(state)
        for value, average in ((weight, one), (other, two)):
            with torch.no_grad():
                value.add_(0.5)
            average.follow()
    assert one.state() == two.state()
    with pytest.raises(TrainingError, match="`average`"):
        Average([weight], 0.0).restore(one.state())
