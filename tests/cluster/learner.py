"""verl's learner on its own, without Ray: one step of its FSDP2 engine on given rows."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from memagent.cluster.settings import verl_config
from memagent.training.credit import CreditedRow
from memagent.training.rl_config import RlConfig


def make_learner(config: RlConfig, tokens: int, *, packed: bool = False) -> Any:
    """The learner that `config` asks for, in a process group of the environment's ranks, with micro-batches of `tokens`."""
    os.environ.setdefault("MASTER_PORT", str(free_port()))
    settings = verl_config(config, Path("unused"))
    settings.actor_rollout_ref.model.use_remove_padding = packed
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.engine_workers import TrainingWorkerConfig
    from verl.workers.utils.losses import ppo_loss

    from memagent.cluster.cpu import join_group, register_learner
    from memagent.cluster.worker import RatedLearner

    join_group()
    register_learner()
    actor: Any = omega_conf_to_dataclass(settings.actor_rollout_ref.actor)
    model: Any = omega_conf_to_dataclass(settings.actor_rollout_ref.model)
    actor.model_config = model
    made = TrainingWorkerConfig(
        model_type="language_model",
        model_config=model,
        engine_config=actor.engine,
        optimizer_config=actor.optim,
        checkpoint_config=actor.checkpoint,
    )
    made.engine_config.use_dynamic_bsz = True
    made.engine_config.max_token_len_per_gpu = made.engine_config.infer_max_token_len_per_gpu = tokens
    learner = RatedLearner(made)
    learner.reset()
    learner.set_loss_fn(partial(ppo_loss, config=actor))
    return learner


def one_step(
    learner: Any, rows: Sequence[CreditedRow], old: Sequence[Any], reference: Sequence[Any], rate: float, everywhere: int
) -> tuple[float, float]:
    """Loss and gradient norm of an update on the rows; `everywhere` counts those of all ranks."""
    from verl.utils import tensordict_utils as tu

    parts = [row.conversation for row in rows]
    ones = [[1] * len(part.reply) for part in parts]
    data = {
        "prompts": _nested([part.prompt for part in parts], torch.int64),
        "responses": _nested([part.reply for part in parts], torch.int64),
        "response_mask": _nested(ones, torch.int64),
        "loss_mask": _nested(ones, torch.int64),
        "input_ids": _nested([part.prompt + part.reply for part in parts], torch.int64),
        "position_ids": _nested([range(len(part.prompt + part.reply)) for part in parts], torch.int64),
        "old_log_probs": _nested(old, torch.float32),
        "ref_log_prob": _nested(reference, torch.float32),
        "advantages": _nested([[row.up + row.down] * len(row.conversation.reply) for row in rows], torch.float32),
    }
    options = {
        "temperature": 1.0,
        "mini_batch_size": everywhere,
        "global_batch_size": everywhere,
        "epochs": 1,
        "calculate_entropy": True,
        "dataloader_kwargs": {"shuffle": False},
        "rate": rate,
    }
    metrics = tu.get(learner.train_mini_batch(tu.get_tensordict(data, non_tensor_dict=options)), "metrics")
    return float(metrics["loss"][0]), float(metrics["grad_norm"][0])


def _nested(lists: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(list(one), dtype=dtype) for one in lists], layout=torch.jagged)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
