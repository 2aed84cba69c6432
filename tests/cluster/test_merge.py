"""Shards of a checkpoint against the model they are merged into: what does not fit is refused, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from memagent.cluster.merge import merge
from memagent.errors import TrainingError
from memagent.training.model import load_model
from memagent.training.rl_config import RlConfig
from tests.cluster.conftest import CONFIG

Experiment = Callable[..., RlConfig]


def checkpoint(config: RlConfig, run: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> dict[str, torch.Tensor]:
    """A run with a checkpoint of one rank, whose weights are the start's plus one, changed."""
    shards = run / "checkpoints" / "global_step_1" / "actor"
    shards.mkdir(parents=True)
    (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("1")
    (run / "config.toml").write_text(CONFIG.format(start=config.start, book=config.books[0]))
    weights = {name: value + 1 for name, value in load_model(Path(config.start)).state_dict().items()}
    change(weights)
    torch.save(weights, shards / "model_world_size_1_rank_0.pt")
    return weights


def test_weights_come_from_the_checkpoint(experiment: Experiment, tmp_path: Path) -> None:
    weights = checkpoint(experiment("qwen2"), tmp_path / "run", lambda weights: None)
    merge(tmp_path / "run", tmp_path / "model", "float32")
    merged = load_model(tmp_path / "model").state_dict()
    assert merged.keys() == weights.keys()
    assert all(torch.equal(merged[name], weights[name]) for name in merged)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda weights: weights.pop("model.norm.weight"), "model.norm.weight"),
        (lambda weights: weights.pop("lm_head.weight"), "lm_head.weight"),  # of a model that has a head of its own
        (lambda weights: weights.update(stray=torch.ones(1)), "stray"),
        (lambda weights: weights.update({"model.norm.weight": torch.ones(1)}), "model.norm.weight"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(
    experiment: Experiment, tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], object], named: str
) -> None:
    checkpoint(experiment("qwen2"), tmp_path / "run", change)
    with pytest.raises(TrainingError, match=rf"does not fit the model in .*\['{named}'\]"):
        merge(tmp_path / "run", tmp_path / "model", "float32")
    assert not (tmp_path / "model").exists()
