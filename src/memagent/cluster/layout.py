"""A summary of a run on verl for `--dry-run`: its processes, batches and memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from memagent.cluster.served import served_model
from memagent.models.open import model_folder
from memagent.tasks.files import SampleFile
from memagent.training.rl_config import RlConfig
from memagent.training.rollout import policy_settings, wording_tokens

_GIB = 1 << 30


def describe(config: RlConfig) -> Iterator[str]:
    """Lines on the world, a batch, an update, and what would be started. Raises ConfigError, ModelError or TaskError."""
    cluster, update, rollout = config.cluster, config.update, config.rollout
    opened = served_model(model_folder(config.start))
    settings = policy_settings(config, opened, rollout)
    template = wording_tokens(config, opened)
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
    memory = turns * (template + budgets.question + budgets.chunk + budgets.memory + budgets.update_tokens)
    answer = template + budgets.question + budgets.memory + budgets.answer_tokens
    tokens = (memory + answer) * -(-readings // updates)
    yield f"documents: up to {longest:,} tokens, so up to {turns} memory updates of {budgets.chunk:,} tokens and an answer"
    yield (
        f"update: at most {tokens:,} tokens, {-(-tokens // learners):,} a learner, in micro-batches of"
        f" {update.batch_tokens:,} tokens"
    )
    parameters, vocabulary = _size(model_folder(config.start))
    share, logits = 16 * parameters / learners / _GIB, 8 * update.batch_tokens * vocabulary / _GIB
    yield (
        f"memory of a learner: {share:.2f} GiB for its share of weights, gradients and AdamW's states (16 bytes for each of"
        f" {parameters:,} parameters), {logits:.2f} GiB for the logits of a micro-batch (8 bytes × {update.batch_tokens:,}"
        f" tokens × {vocabulary:,}); activations come on top"
    )
    if config.algorithm.kl:
        kept = 4 * parameters / cluster.nodes / _GIB
        yield f"reference: {kept:.2f} GiB in the main memory of every machine (4 bytes a parameter over all of them)"
    yield (
        f"processes: a controller, verl's queue and reward worker, {learners} learners, {servers} rollout server(s),"
        f" {cluster.readers} readers of documents; Ray needs {cpus_needed(config)} CPUs"
    )
    yield (
        f"watchdog: the run is stopped when nothing (a document, an optimizer step, a validation) is finished for"
        f" {cluster.watchdog:,} s"
    )


def cpus_of_learners(learners: int) -> int:
    """CPUs that verl reserves in Ray for its learners on their machine."""
    return 3 * learners


def cpus_needed(config: RlConfig) -> int:
    """CPUs that Ray must have: for the learners, the readers and a few processes of verl."""
    return cpus_of_learners(config.cluster.learners) + config.cluster.readers + 8


def _lengths(config: RlConfig) -> Iterator[int]:
    for part in config.task:
        if part.file is None:
            yield max(part.tokens)
        else:
            yield max(entry.tokens for entry in SampleFile.open(part.file).entries)


def _size(folder: Path) -> tuple[int, int]:
    """Parameters of the model in a folder, counted without loading it, and tokens of its vocabulary."""
    build: Any = AutoModelForCausalLM.from_config
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    with torch.device("meta"):
        model = build(config)
    return sum(value.numel() for value in model.parameters()), config.vocab_size
