"""A checkpoint of verl as a model folder: its shards are merged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from memagent.errors import TrainingError
from memagent.models.open import model_folder
from memagent.training.checkpoints import verl_shards, verl_step
from memagent.training.config import load_config
from memagent.training.export import check_target, export_model
from memagent.training.model import load_model
from memagent.training.rl_config import RlConfig


def merge(run: Path, folder: Path, dtype: str) -> None:
    """Writes the last checkpoint of a run as the model folder `folder`, with the tokenizer and the memagent.toml of the
    model that it began from. Raises TrainingError for a checkpoint that is not whole, ConfigError or OutputError as
    `export_checkpoint` does."""
    check_target(folder, dtype)
    step = verl_step(run)
    if step is None:
        raise TrainingError(f"{run} holds no checkpoint of verl")
    start = model_folder(load_config(run / "config.toml", RlConfig).start)
    model: Any = load_model(start)
    missing, unlike = model.state_dict(), []
    try:
        for name, value in whole_weights(verl_shards(run, step)):
            weight = missing.pop(name, None)
            if weight is None or weight.shape != value.shape:  # copy_ would repeat a smaller one
                unlike.append(name)
            else:
                weight.copy_(value)
    except (OSError, RuntimeError, ValueError, EOFError) as error:
        raise TrainingError(f"the checkpoint in {verl_shards(run, step)} cannot be read: {error}") from error
    if model.config.tie_word_embeddings:
        missing.pop("lm_head.weight", None)  # tied to the embedding, it may be stored once
    if unlike or missing:
        raise TrainingError(f"the checkpoint does not fit the model in {start}: {sorted({*missing, *unlike})[:5]}")
    export_model(model, start, folder, dtype)


def whole_weights(shards: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights of all ranks, as they were trained, one after another. Raises ValueError if a rank's are missing."""
    files = sorted(shards.glob("model_world_size_*_rank_*.pt"), key=lambda path: int(path.stem.rpartition("_")[2]))
    size = int(files[0].stem.split("_")[3]) if files else 0
    if not files or len(files) != size:
        raise ValueError(f"{len(files)} files of {size or 'no'} ranks in {shards}")
    # Only what a run of the user's own wrote is opened here: shards of FSDP2 are pickled with their layout.
    logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)  # it warns of torch.compile
    ranks = [torch.load(path, map_location="cpu", mmap=True, weights_only=False) for path in files]
    for name in ranks[0]:
        yield name, _joined([rank[name] for rank in ranks])


def _joined(parts: list[Any]) -> torch.Tensor:
    first = parts[0]
    if not isinstance(first, DTensor):
        return first
    if len(first.placements) != 1:
        raise ValueError(f"weights are sharded as {first.placements}: only one dimension is supported")
    placement: Any = first.placements[0]
    local = [part.to_local() for part in parts]
    return torch.cat(local, dim=placement.dim) if placement.is_shard() else local[0]
