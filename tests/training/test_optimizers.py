"""Muon: PyTorch's, up to the rounding of bfloat16."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from memagent.training.optimizers import Muon, orthogonal, restore

SHAPES = [(24, 40), (40, 24), (24, 24), (24, 40), (3, 200)]


def drawn(seed: int) -> list[Tensor]:
    """Matrices whose singular values are far apart."""
    rng = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=rng) @ torch.diag(torch.rand(shape[1], generator=rng) ** 3 + 0.01) for shape in SHAPES
    ]


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(value) for value in drawn(0)]


def walked(optimizer: torch.optim.Optimizer, values: list[torch.nn.Parameter], seeds: range) -> None:
    for seed in seeds:
        for value, grad in zip(values, drawn(seed), strict=True):
            value.grad = grad
        optimizer.step()


@pytest.mark.parametrize("shape", [(6, 10), (10, 6), (8, 8)])
def test_orthogonal_keeps_the_singular_vectors_and_evens_the_values(shape: tuple[int, int]) -> None:
    matrix = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    values = left.mT @ orthogonal(matrix) @ right.mT
    diagonal = values.diagonal(dim1=1, dim2=2)
    assert (values - torch.diag_embed(diagonal)).abs().max() < 1e-4
    assert diagonal.min() > 0.5
    assert diagonal.max() < 1.5


def test_a_matrix_of_zeros_stays() -> None:
    assert orthogonal(torch.zeros(1, 4, 6)).abs().max() == 0


def test_steps_are_those_of_pytorch() -> None:
    ours, theirs, before = parameters(), parameters(), parameters()
    walked(Muon(ours, lr=0.01, weight_decay=0.1), ours, range(1, 6))
    stock = torch.optim.Muon(theirs, lr=0.01, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    walked(stock, theirs, range(1, 6))
    for one, other, start in zip(ours, theirs, before, strict=True):
        assert (one - other).norm() < 0.04 * (one - start).norm()


def test_a_parameter_without_a_gradient_stays() -> None:
    moved, still = parameters()[:2]
    moved.grad, before = torch.ones_like(moved), still.detach().clone()
    Muon([moved, still], lr=0.1).step()
    assert torch.equal(still, before)


def test_a_state_goes_on_where_it_was() -> None:
    whole, halves = parameters(), parameters()
    walked(Muon(whole, lr=0.01), whole, range(1, 7))
    first = Muon(halves, lr=0.01)
    walked(first, halves, range(1, 4))
    second = Muon(halves, lr=0.01)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    walked(second, halves, range(4, 7))
    assert all(torch.equal(one, other) for one, other in zip(whole, halves, strict=True))


def test_a_state_is_loaded_into_the_settings_that_a_run_has_now() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    before = torch.optim.AdamW([weight], lr=1.0, weight_decay=0.01)
    weight.sum().backward()
    before.step()
    now = torch.optim.AdamW([weight], lr=0.5, weight_decay=0.5, betas=(0.5, 0.9))
    restore(now, before.state_dict())
    [group] = now.param_groups
    assert (group["lr"], group["weight_decay"], group["betas"]) == (0.5, 0.5, (0.5, 0.9))
    assert torch.equal(now.state[weight]["exp_avg"], before.state[weight]["exp_avg"])
