"""Atomic checkpoints: a file is either the old one or the new one, never half of one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from memagent.errors import TrainingError


def save_checkpoint(state: dict[str, Any], path: Path) -> None:
    """Writes to a neighbour, flushes it to the disk and renames it."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Raises TrainingError that names the file."""
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises several unrelated classes for a damaged file
        raise TrainingError(f"{path}: cannot be read as a checkpoint: {error}") from error
    return state
