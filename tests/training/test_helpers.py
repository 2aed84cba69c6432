"""Several processes with one set of weights: what one of them would compute, and clear errors where one ends."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memagent.errors import ConfigError, TrainingError
from memagent.training.helpers import Helpers, dealt


class Slope:
    """One weight w; the loss of a number x is w² · x."""

    def __init__(self, start: float) -> None:
        self.weight = torch.nn.Parameter(torch.tensor([start]))

    @property
    def parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [("weight", self.weight)]

    def backward(self, share: list[float]) -> float:
        loss = (self.weight**2 * torch.tensor(share)).sum()
        loss.backward()
        return loss.item()

    def nothing(self, share: list[float]) -> tuple[float, int]:
        return self.weight.item(), os.getpid()

    def refuse(self, share: list[float]) -> None:
        if share == [2.0]:
            raise ConfigError("2 is too much")

    def fail(self, share: list[float]) -> None:
        raise KeyError(share[0])

    def die(self, share: list[float]) -> None:
        if share == [2.0]:
            os._exit(7)


@pytest.fixture
def three() -> Iterator[Helpers[Slope]]:
    helpers = Helpers(2, Slope(3.0), Slope, 1.0)  # helpers begin with other weights, and take the trainer's
    yield helpers
    helpers.close()


SHARES = [[1.0], [2.0], [3.0, 4.0]]


def test_shares_are_computed_side_by_side_and_gradients_add_up(three: Helpers[Slope]) -> None:
    mine = three._mine
    assert three.processes == 3
    for weight in (3.0, 5.0):
        assert three.each(Slope.backward, SHARES) == [weight**2 * sum(share) for share in SHARES]
        three.gather(2)
        assert mine.weight.grad is not None
        assert mine.weight.grad.item() == 2 * weight * 10
        mine.weight.grad = None
        with torch.no_grad():
            mine.weight.fill_(5.0)  # what an optimizer does: the helpers compute with it from now on


def test_of_fewer_shares_the_other_helpers_know_nothing(three: Helpers[Slope]) -> None:
    three.each(Slope.backward, SHARES)
    three.gather(2)
    three._mine.weight.grad = None
    assert three.each(Slope.backward, SHARES[:2]) == [9.0, 18.0]
    three.gather(1)
    assert three._mine.weight.grad.item() == 18.0
    assert three.each(Slope.nothing, []) == []
    found = three.each(Slope.nothing, SHARES)
    assert [weight for weight, _ in found] == [3.0, 3.0, 3.0]
    assert len({process for _, process in found}) == 3


def test_a_job_without_a_gradient_leaves_none_of_the_job_before(three: Helpers[Slope]) -> None:
    three.each(Slope.backward, SHARES)
    three._mine.weight.grad = None
    three.each(Slope.nothing, SHARES)
    three.gather(2)
    assert three._mine.weight.grad is not None
    assert three._mine.weight.grad.item() == 0.0


def test_errors_of_helpers_are_raised_when_all_are_done(three: Helpers[Slope]) -> None:
    with pytest.raises(ConfigError, match="2 is too much"):
        three.each(Slope.refuse, SHARES)
    with pytest.raises(KeyError):
        three.each(Slope.fail, SHARES)
    with pytest.raises(TrainingError, match="helper process failed: KeyError: 2"):
        three.each(_fail_there, SHARES)
    assert three.each(Slope.backward, SHARES) == [9.0, 18.0, 63.0]


def _fail_there(worker: Slope, share: list[float]) -> None:
    if share != [1.0]:
        worker.fail(share)


def test_a_helper_that_ends_is_an_error_that_says_so(three: Helpers[Slope]) -> None:
    for _ in range(2):  # it stays away
        with pytest.raises(TrainingError, match=r"helper process ended with code 7 .*processes="):
            three.each(Slope.die, SHARES)


def test_weights_that_are_not_in_main_memory_are_not_shared() -> None:
    elsewhere = Slope(1.0)
    elsewhere.weight = torch.nn.Parameter(torch.empty(1, device="meta"))
    assert Helpers(0, elsewhere, Slope, 1.0).processes == 1
    with pytest.raises(ConfigError, match=r"processes = 3: .* on meta: leave `processes` out"):
        Helpers(2, elsewhere, Slope, 1.0)


def test_helpers_end_with_the_trainer(three: Helpers[Slope]) -> None:
    processes = [process for process, _ in three._links]
    three.close()
    assert [process.is_alive() for process in processes] == [False, False]


def test_what_costs_much_is_dealt_alone() -> None:
    assert dealt([1, 1, 6, 1, 1, 1, 1], 2) == [[2], [0, 1, 3, 4, 5, 6]]
    assert dealt([5, 4], 3) == [[0], [1]]


@given(costs=st.lists(st.integers(1, 100)), hands=st.integers(1, 5))
def test_everything_is_dealt_once_and_no_hand_has_much_more(costs: list[int], hands: int) -> None:
    places = dealt(costs, hands)
    assert sorted(place for hand in places for place in hand) == list(range(len(costs)))
    sums = [sum(costs[place] for place in hand) for hand in places]
    assert len(places) <= hands
    assert max(sums, default=0) - min(sums, default=0) <= max(costs, default=0)
