"""The weighted mean of the weights of several models, as in WiSE-FT (arXiv 2109.01903): it keeps what a later stage taught
and what was known before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from memagent.errors import TrainingError
from memagent.training.export import export_model
from memagent.training.model import load_model


@torch.no_grad()
def write_blend(shares: Mapping[Path, float], folder: Path) -> None:
    """Writes a model whose weights are, tensor by tensor, Σ share × weights, in float32; all else is that of the first.

    `shares` are by model folder and add up to 1. Raises TrainingError if the shapes of two models differ, or OutputError.
    """
    (first, share), *others = shares.items()
    model = load_model(first)
    model.float()
    mixed = {name: share * value for name, value in model.state_dict().items()}
    for source, share in others:
        other = load_model(source).float().state_dict()
        if {name: value.shape for name, value in other.items()} != {name: value.shape for name, value in mixed.items()}:
            raise TrainingError(
                f"the models in {first} and {source} have weights of different shapes: they cannot be blended"
            )
        for name, value in other.items():
            mixed[name] += share * value
    model.load_state_dict(mixed)
    export_model(model, first, folder, "float32")
