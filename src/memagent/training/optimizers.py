"""The optimizers of supervised training."""

from __future__ import annotations

from typing import Any

import torch

from memagent.training.config import Schedule


class Optimizers:
    """Muon for the matrices inside the layers, AdamW for embeddings, convolution kernels and norms.

    `schedule.muon` is Muon's rate as a multiple of the schedule's; 0: AdamW for everything.
    """

    def __init__(self, model: torch.nn.Module, plan: Schedule) -> None:
        trained = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
        outside = ("embed", "lm_head")
        inner = [value for name, value in trained if value.dim() == 2 and not any(part in name for part in outside)]
        ids = {id(value) for value in inner}
        outer = [value for _, value in trained if id(value) not in ids]
        groups: list[dict[str, Any]] = [{"params": outer, "weight_decay": 0.0}]
        if not plan.muon:
            groups.append({"params": inner, "weight_decay": plan.weight_decay})
        groups = [group for group in groups if group["params"]]
        self.parts: list[torch.optim.Optimizer] = [torch.optim.AdamW(groups, lr=plan.rate, betas=plan.betas, fused=True)]
        if plan.muon:
            self.parts.append(
                torch.optim.Muon(
                    inner, lr=plan.rate, weight_decay=plan.weight_decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"
                )
            )
        self.factors = [1.0, plan.muon]

    def step(self, rate: float) -> None:
        """One step at that learning rate; gradients are dropped."""
        for factor, part in zip(self.factors, self.parts, strict=False):
            for group in part.param_groups:
                group["lr"] = rate * factor
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)
