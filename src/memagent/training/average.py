"""An exponential average of weights, which leaves out the noise of single steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from memagent.errors import TrainingError


class Average:
    """Follows parameters with `decay` per step; in the beginning faster, so that the start is forgotten. A decay of 0 is no
    average: the weights are those of the parameters themselves."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter], decay: float) -> None:
        self._parameters, self._decay, self._steps = list(parameters), decay, 0
        self._values = [value.detach().clone() for value in parameters] if decay else []

    @torch.no_grad()
    def follow(self) -> None:
        """After a step of the optimizer."""
        if self._values:
            decay = min(self._decay, (1 + self._steps) / (10 + self._steps))
            torch._foreach_lerp_(self._values, [value.detach() for value in self._parameters], 1 - decay)
        self._steps += 1

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Puts the averages where the parameters are, for as long as the block lasts."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state(self) -> dict[str, list[Tensor] | int]:
        """What a step changes."""
        return {"values": [value.cpu() for value in self._values], "steps": self._steps}

    @torch.no_grad()
    def restore(self, state: dict[str, list[Tensor] | int]) -> None:
        """Undoes a stop. Raises TrainingError if only one of the two configurations has an average."""
        values, steps = state["values"], state["steps"]
        assert isinstance(values, list)
        assert isinstance(steps, int)
        if len(values) != len(self._values):
            raise TrainingError(
                "the checkpoint does not fit this configuration: `average` is switched on in one of them only"
            )
        for mine, value in zip(self._values, values, strict=True):
            mine.copy_(value)
        self._steps = steps

    @torch.no_grad()
    def _swap(self) -> None:
        for value, parameter in zip(self._values, self._parameters, strict=False):
            kept = parameter.detach().clone()
            parameter.copy_(value)
            value.copy_(kept)
