"""A checkpoint as a model folder for others to open: transformers, vLLM, llama.cpp's converter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from memagent.errors import ConfigError, TrainingError
from memagent.models.local import quiet
from memagent.training.checkpoints import Checkpoints, writing_model
from memagent.training.model import BESIDE_WEIGHTS, load_model

_DTYPES = ("float32", "bfloat16", "float16")


def export_checkpoint(
    run: Path, folder: Path, name: str = "best", dtype: str = "bfloat16", blend: Sequence[tuple[Path, float]] = ()
) -> int:
    """Writes weights of `dtype`, the tokenizer and memagent.toml, and returns the step of the checkpoint. A folder that is
    not empty is left alone.

    `blend` are model folders, or other runs of which the checkpoint of this name is taken, each with its share in the
    weights. Raises ConfigError, TrainingError or OutputError.
    """
    if name not in ("best", "last"):
        raise ConfigError(f"no checkpoint {name!r}: give best or last")
    check_target(folder, dtype)
    shares = [share for _, share in blend]
    if not all(0 < share < 1 for share in shares) or sum(shares) >= 1:
        said = ", ".join(f"{share:g}" for share in shares)
        raise ConfigError(f"the shares of other runs are {said}: each is above 0, and all of them are below 1")
    own = Checkpoints(run).folder(cast(Any, name))
    mixed = {own.resolve(): 1 - sum(shares)}
    for other, share in blend:
        source = (other if _is_model(other) else Checkpoints(other).folder(cast(Any, name))).resolve()
        if source in mixed:
            raise ConfigError(f"{other} is given twice, or is the run itself: give every model once, with its share")
        mixed[source] = share
    write_mean(mixed, folder, dtype)
    return int(own.resolve().name)


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file()


@torch.no_grad()
def write_mean(shares: Mapping[Path, float], folder: Path, dtype: str) -> None:
    """Writes a model whose weights are, tensor by tensor, Σ share × weights, computed in float32, as in WiSE-FT (arXiv
    2109.01903): it keeps what later training taught and what was known before. All else is that of the first.

    `shares` are by model folder and add up to 1. Raises TrainingError if the shapes of two models differ, or OutputError.
    """
    (first, share), *others = shares.items()
    model = load_model(first)
    if others:
        model.float()
        mixed = {name: share * value for name, value in model.state_dict().items()}
        for source, share in others:
            other = load_model(source).float().state_dict()
            if {name: value.shape for name, value in other.items()} != {name: one.shape for name, one in mixed.items()}:
                raise TrainingError(f"the models in {first} and {source} have weights of different shapes: no mean of them")
            for name, value in other.items():
                mixed[name] += share * value
        model.load_state_dict(mixed)
    export_model(model, first, folder, dtype)


def check_target(folder: Path, dtype: str) -> None:
    """Raises ConfigError if weights of `dtype` cannot be put into `folder`."""
    if dtype not in _DTYPES:
        raise ConfigError(f"no dtype {dtype!r} to write weights in; known: {', '.join(_DTYPES)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty: give a new folder for the model")


def export_model(model: Any, source: Path, folder: Path, dtype: str) -> None:
    """Writes the model, with weights of `dtype`, and what goes with them from `source`. Raises OutputError."""
    with writing_model(folder, folder):
        folder.mkdir(parents=True, exist_ok=True)
        with quiet():
            model.to(getattr(torch, dtype)).save_pretrained(folder)
        for name in BESIDE_WEIGHTS:
            if (source / name).is_file():
                (folder / name).write_bytes((source / name).read_bytes())
