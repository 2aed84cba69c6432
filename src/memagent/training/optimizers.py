"""The optimizers of supervised training."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from memagent.training.config import Schedule

# Coefficients and steps of the Newton–Schulz iteration, those of torch.optim.Muon.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_STEPS = 5
_OUTSIDE = re.compile("embed|lm_head")


class Optimizers:
    """Muon for the matrices inside the layers, AdamW for embeddings, convolution kernels and norms.

    `schedule.muon` is Muon's rate as a multiple of the schedule's; 0: AdamW for everything. `keep_gradients`: a step leaves
    zeros in the place of gradients, not nothing.
    """

    def __init__(self, model: torch.nn.Module, plan: Schedule, *, keep_gradients: bool = False) -> None:
        self._keep = keep_gradients
        inner = matrices(model)
        ids = {id(value) for value in inner}
        outer = [value for value in model.parameters() if value.requires_grad and id(value) not in ids]
        groups: list[dict[str, Any]] = [{"params": outer, "weight_decay": 0.0}]
        if not plan.muon:
            groups.append({"params": inner, "weight_decay": plan.weight_decay})
        groups = [group for group in groups if group["params"]]
        self.parts: list[torch.optim.Optimizer] = []
        self.factors: list[float] = []
        if groups:  # with adapters there are only matrices
            self.parts.append(torch.optim.AdamW(groups, lr=plan.rate, betas=plan.betas, fused=True))
            self.factors.append(1.0)
        if plan.muon:
            self.parts.append(Muon(inner, lr=plan.rate, weight_decay=plan.weight_decay))
            self.factors.append(plan.muon)

    def step(self, rate: float) -> None:
        """One step at that learning rate; gradients are dropped."""
        for factor, part in zip(self.factors, self.parts, strict=True):
            for group in part.param_groups:
                group["lr"] = rate * factor
            part.step()
            part.zero_grad(set_to_none=not self._keep)

    def state_dict(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        for part, state in zip(self.parts, states, strict=True):
            restore(part, state)


def restore(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Loads what an optimizer has learnt of the gradients. Its settings stay those that it was made with: a run that is
    resumed may have changed them."""
    settings = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, kept in zip(optimizer.param_groups, settings, strict=True):
        group.update(kept)


def matrices(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The matrices inside the layers that are trained."""
    named = model.named_parameters()
    return [value for name, value in named if value.requires_grad and value.dim() == 2 and not _OUTSIDE.search(name)]


class Muon(torch.optim.Muon):
    """torch.optim.Muon with Nesterov's momentum and updates of AdamW's size, orthogonalising all matrices of one shape at
    once, on a CPU in float32.

    PyTorch iterates in bfloat16, matrix after matrix: on a CPU without bfloat16 instructions that took longer than forward
    and backward together (docs/decisions/0018-muon-in-float32.md). States are those of PyTorch's.
    """

    def __init__(self, params: Iterable[torch.nn.Parameter], lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr=lr, weight_decay=weight_decay, momentum=0.95, adjust_lr_fn="match_rms_adamw")

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One step; parameters without a gradient stay."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for value in group["params"]:
                if value.grad is not None:
                    shapes.setdefault(value.shape, []).append(value)
            for shape, values in shapes.items():
                update_NRC = orthogonal(torch.stack([self._direction(value, group["momentum"]) for value in values]))
                rate = group["lr"] * 0.2 * max(shape) ** 0.5
                for value, update_RC in zip(values, update_NRC, strict=True):
                    value.mul_(1 - group["lr"] * group["weight_decay"])
                    value.add_(update_RC, alpha=-rate)

    def _direction(self, value: Tensor, momentum: float) -> Tensor:
        grad, state = value.grad, self.state[value]
        assert grad is not None
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(grad)
        state["momentum_buffer"].lerp_(grad, 1 - momentum)
        return grad.lerp(state["momentum_buffer"], momentum)


def orthogonal(matrix_NRC: Tensor) -> Tensor:
    """Nearly the orthogonal factor U Vᵀ of each matrix U S Vᵀ [N, R, C]: singular values come out between 0.5 and 1.5 or so
    (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks")."""
    a, b, c = _QUINTIC
    wide = matrix_NRC.size(1) <= matrix_NRC.size(2)
    value = matrix_NRC.to(torch.bfloat16 if matrix_NRC.is_cuda else torch.float32)
    value = value if wide else value.mT
    value = value / value.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(_STEPS):
        gram = value @ value.mT
        value = torch.baddbmm(value, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), value, beta=a)
    return value if wide else value.mT
