"""What a run on verl comes to: who does what, and how much of it. For `--dry-run`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from memagent.cluster.settings import reading_settings
from memagent.models.open import model_folder
from memagent.tasks.files import SampleFile
from memagent.training.rl_config import RlConfig

_GIB = 1 << 30


def describe(config: RlConfig) -> Iterator[str]:
    """Lines on the world, a batch, an update, and what would be started. Raises ConfigError, ModelError or TaskError."""
    cluster, update, rollout = config.cluster, config.update, config.rollout
    settings = reading_settings(config, model_folder(config.start), rollout.temperature)
    learners = cluster.learners
    servers = learners // cluster.tensor_parallel
    yield f"world: {cluster.nodes} node(s) × {cluster.devices} {cluster.device} = {learners} learners (FSDP2 over all)"
    yield f"rollout: {servers} {cluster.rollout} server(s) of {cluster.tensor_parallel} on the learners' devices, in turns"
    readings = rollout.prompts * rollout.group
    updates = min(update.updates, readings)
    yield (
        f"batch: {rollout.prompts} documents × {rollout.group} readings = {readings}; {updates} optimizer steps of"
        f" {readings // updates} to {-(-readings // updates)} readings (fewer when groups carry no signal)"
    )
    budgets = settings.budgets
    longest = max(_lengths(config))
    turns = -(-longest // budgets.chunk)
    memory = turns * (budgets.question + budgets.chunk + budgets.memory + budgets.update_tokens)
    answer = budgets.question + budgets.memory + budgets.answer_tokens
    tokens = (memory + answer) * -(-readings // updates)
    yield f"documents: up to {longest:,} tokens, so up to {turns} memory updates of {budgets.chunk:,} tokens and an answer"
    yield (
        f"update: at most {tokens:,} tokens, {-(-tokens // learners):,} a learner, in micro-batches of"
        f" {update.batch_tokens:,} tokens"
    )
    parameters = _parameters(model_folder(config.start))
    bytes_each = 16 if not config.policy.lora.rank else 4
    yield (
        f"weights: {parameters:,} parameters; a learner's share of weights, gradients and AdamW's states"
        f" ({bytes_each} bytes each{', adapters apart' if config.policy.lora.rank else ''}) is"
        f" {parameters * bytes_each / learners / _GIB:.2f} GiB; activations come on top"
    )
    readers, runners = cluster.readers, "1 controller, 1 queue"
    yield f"processes: {runners}, {learners} learners, {servers} rollout server(s), {readers} readers of documents"
    yield f"watchdog: the run is stopped when no batch or validation ends for {cluster.watchdog:,} s"


def _lengths(config: RlConfig) -> Iterator[int]:
    for part in config.task:
        if part.file is None:
            yield max(part.tokens)
        else:
            yield max(entry.tokens for entry in SampleFile.open(part.file).entries)


def _parameters(folder: Path) -> int:
    """Of the model in a folder, counted without loading it."""
    build: Any = AutoModelForCausalLM.from_config
    with torch.device("meta"):
        model = build(AutoConfig.from_pretrained(folder, local_files_only=True))
    return sum(value.numel() for value in model.parameters())
