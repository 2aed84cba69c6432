"""How a run begins, whichever trainer it is of."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console

from memagent.training.config import RunConfig
from memagent.training.log import RunLog


def make_repeatable(config: RunConfig) -> None:
    """The threads and the random numbers of torch: before anything is computed."""
    if config.threads:
        torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)


def open_log(config: RunConfig, folder: Path, *, step: int | None, source: str, console: Console | None) -> RunLog:
    """The log of the run in `folder`, when its trainer is open. `step` is that of the checkpoint it goes on from, if any;
    `source` as in RunLog. Raises as RunLog does."""
    return RunLog(
        folder,
        step=-1 if step is None else step,
        console=console,
        tensorboard=config.log.tensorboard,
        wandb=config.log.wandb,
        config=config.model_dump(mode="json"),
        source=source,
    )
