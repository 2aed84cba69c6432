"""A checkpoint as a model folder for others to open: transformers, vLLM, llama.cpp's converter."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch

from memagent.errors import ConfigError
from memagent.models.local import quiet
from memagent.training.checkpoints import Checkpoints, writing_model
from memagent.training.model import BESIDE_WEIGHTS, load_model

_DTYPES = ("float32", "bfloat16", "float16")


def export_checkpoint(run: Path, folder: Path, name: str = "best", dtype: str = "bfloat16") -> None:
    """Writes weights of `dtype`, the tokenizer and memagent.toml; a folder that is not empty is left alone. Raises
    ConfigError, TrainingError or OutputError."""
    if name not in ("best", "last"):
        raise ConfigError(f"no checkpoint {name!r}: give best or last")
    check_target(folder, dtype)
    source = Checkpoints(run).folder(cast(Any, name))
    export_model(load_model(source), source, folder, dtype)


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
