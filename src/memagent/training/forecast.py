"""What a run will take, before it begins: tokens, memory and time.

No weights are opened and nothing is sampled: the model is built without storage, and some documents of the mix say how
long readings are. Tokens are the most there can be (memories and answers are taken to fill their budgets). Memory leaves
out what the framework itself needs, and fragments. Time counts the products of weights only; of a mixture of experts, those
of the experts that a token is given to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoTokenizer

from memagent.core import Plan, template_tokens
from memagent.core.readers.chunkwise import memory_tokens
from memagent.errors import ConfigError, TrainingError
from memagent.models.local import LocalEngine, quiet
from memagent.models.open import OpenModel, model_folder, narrowed, read_defaults
from memagent.training.config import LoraConfig, PolicyConfig, SftConfig
from memagent.training.growth import grown
from memagent.training.model import build_model
from memagent.training.products import bytes_computed, bytes_of_weight
from memagent.training.rl_config import RlConfig
from memagent.training.rollout import curriculum_of, plans_of_run

EITHER = ("an update", "sampling")
# Bytes of activations that one layer keeps of a token, for each of its hidden values, in 16 bits (arXiv 2205.05198,
# section 4.1, without those of attention's products, which no kernel keeps any more).
_ACTIVATIONS = 34
_ADAM = 12  # bytes of a trained parameter: its gradient and two moments, in float32
_GATED, _AROUND = 3, 6  # of a token: values of a gated layer's inner size, and of the hidden size, that are there at once
_LOGITS = 12  # bytes of a logit: as computed, in float32, and its gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """`prompt_tokens`, `reply_tokens` and FLOPs are of one step; `memory` is in bytes, by what it is for, of which `EITHER`
    are needed at different times. `readings` and `turns` (of a reading, on average) are 0 in supervised training."""

    parameters: int
    trained: int
    steps: int
    readings: int = 0
    turns: float = 0.0
    prompt_tokens: int
    reply_tokens: int = 0
    sampling_flops: float = 0.0
    update_flops: float
    memory: Mapping[str, int]

    @property
    def peak(self) -> int:
        """Bytes needed at a time."""
        apart = [size for name, size in self.memory.items() if name in EITHER]
        return sum(size for name, size in self.memory.items() if name not in EITHER) + max(apart, default=0)

    @property
    def flops(self) -> float:
        """Of the whole run."""
        return self.steps * (self.sampling_flops + self.update_flops)


def forecast_rl(config: RlConfig) -> Forecast:
    """What a run of reinforcement learning takes, if no batch is sampled again. Raises what the run would raise at once."""
    folder = model_folder(config.start)
    model, tokenizer = _empty(folder)
    engine = LocalEngine.hosting(model, tokenizer, name="policy", version="none")
    opened = narrowed(engine, read_defaults(folder))
    mix = curriculum_of(config, opened)
    plans = plans_of_run(config, opened, mix)
    readings = config.rollout.prompts * config.rollout.group
    turns = sum(plan.turns for plan in plans) / len(plans)
    prompt = readings * sum(_shown(plan, opened) for plan in plans) // len(plans)
    reply = readings * sum(_written(plan) for plan in plans) // len(plans)
    kept = config.algorithm.kl > 0
    trained = _trained(model, config.policy.lora)
    size = _size(model)
    passes = _passes(config.policy)
    passes += 2 * kept + 2 * (config.algorithm.old_logprobs == "recomputed")
    memory = _held(config.policy, size, trained, average=config.update.average > 0)
    if kept and not config.policy.lora.rank:
        memory["reference"] = size * bytes_of_weight(config.policy)
    share = reply / (prompt + reply)
    longest = max(
        plan.budgets.question + plan.budgets.memory + plan.budgets.chunk + plan.budgets.update_tokens for plan in plans
    )
    memory["an update"] = _update(model, config.policy, max(config.update.batch_tokens, longest), share)
    memory["sampling"] = _sampling(model, config.policy, config.rollout.batch_tokens)
    active = _active(model)
    return Forecast(
        parameters=size,
        trained=trained,
        steps=config.steps,
        readings=readings,
        turns=turns,
        prompt_tokens=prompt,
        reply_tokens=reply,
        sampling_flops=2.0 * active * (prompt + reply),
        update_flops=float(passes) * active * (prompt + reply),
        memory=memory,
    )


def forecast_sft(config: SftConfig) -> Forecast:
    """What a supervised run takes."""
    if config.model is None:
        model, _ = _empty(model_folder(str(config.start)), config.stack)
    else:
        with quiet(), torch.device("meta"):
            tokenizer: Any = AutoTokenizer.from_pretrained(config.tokenizer, local_files_only=True)
            model = build_model(config.model, len(tokenizer), config.seed)
    schedule, size, trained = config.schedule, _size(model), _trained(model, config.policy.lora)
    tokens = schedule.batches * schedule.batch_tokens
    memory = _held(config.policy, size, trained, average=schedule.average > 0)
    memory["an update"] = _update(model, config.policy, schedule.batch_tokens, 1.0)
    return Forecast(
        parameters=size,
        trained=trained,
        steps=schedule.steps,
        prompt_tokens=tokens,
        update_flops=float(_passes(config.policy)) * _active(model) * tokens,
        memory=memory,
    )


def _empty(folder: Path, stack: Sequence[int] = ()) -> tuple[Any, Any]:
    """The model of a folder without its weights, with the layers of `stack` if there is one, and the tokenizer."""
    if not (folder / "config.json").is_file():
        raise TrainingError(f"no model in {folder}: set `start` to a Hugging Face folder with config.json and tokenizer")
    try:
        with quiet():
            tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            shape = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
            with torch.device("meta"):
                shape = grown(shape, stack) if stack else shape
                return transformers.AutoModelForCausalLM.from_config(shape), tokenizer
    except ConfigError:
        raise
    except Exception as error:  # whatever is wrong with a folder, transformers raises its own kind of it
        raise TrainingError(f"the model in {folder} cannot be planned with: {error}") from error


def _shown(plan: Plan, opened: OpenModel) -> int:
    """Prompt tokens of a reading, at most."""
    engine = opened.engine
    question = engine.tokenizer.count(plan.asked)
    wording = template_tokens(plan.profile, engine.tokenizer, engine.overhead, plan.reader.templates, question=question)
    return plan.turns * (wording + question + memory_tokens(plan)) + plan.reader.shown(plan)


def _written(plan: Plan) -> int:
    """Reply tokens of a reading, at most."""
    budgets = plan.budgets
    return (plan.turns - 1) * budgets.memory + budgets.answer + plan.turns * budgets.reasoning


def _size(model: Any) -> int:
    return sum(value.numel() for value in model.parameters())


def _active(model: Any) -> float:
    """Parameters that a token is multiplied with: not an embedding that is only looked up, and of experts the share that it
    is given to."""
    shape = model.config.get_text_config()
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    experts = next((count for name in names if (count := getattr(shape, name, None))), 0)
    share = getattr(shape, "num_experts_per_tok", experts) / experts if experts else 1.0
    looked_up = None if shape.tie_word_embeddings else model.get_input_embeddings().weight
    return sum(
        value.numel() * (share if ".experts." in name else 1.0)
        for name, value in model.named_parameters()
        if value is not looked_up
    )


def _trained(model: Any, lora: LoraConfig) -> int:
    """Parameters that are trained: all, or those of adapters."""
    if not lora.rank:
        return _size(model)
    head = model.get_output_embeddings()
    layers = [
        layer
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and (name.rpartition(".")[2] in lora.targets if lora.targets else layer is not head)
    ]
    return sum(lora.rank * (layer.in_features + layer.out_features) for layer in layers)


def _passes(policy: PolicyConfig) -> int:
    """FLOPs of an update for each weight and token: forward, backward through activations and, where they are trained,
    weights, and forward again with checkpointing."""
    return 4 + 2 * (not policy.lora.rank) + 2 * policy.checkpointing


def _held(policy: PolicyConfig, size: int, trained: int, *, average: bool) -> dict[str, int]:
    """Bytes that are needed all the time."""
    held = {"weights": size * bytes_of_weight(policy), "gradients and AdamW": trained * _ADAM}
    if policy.lora.rank:
        held["adapters"] = trained * 4
    if average:
        held["average"] = trained * 4
    if policy.bf16 and policy.dtype == "float32":
        held["weights in bfloat16"] = size * 2
    return held


def _update(model: Any, policy: PolicyConfig, tokens: int, replies: float) -> int:
    """Bytes of activations and logits of a micro-batch, of which a share are replies."""
    shape = model.config.get_text_config()
    hidden = tokens * shape.hidden_size * bytes_computed(policy)
    layer = hidden * _ACTIVATIONS // 2
    layers = int(shape.num_hidden_layers)
    kept = layer + layers * hidden if policy.checkpointing else layers * layer
    return kept + int(replies * tokens) * shape.vocab_size * _LOGITS


def _sampling(model: Any, policy: PolicyConfig, tokens: int) -> int:
    """Bytes of a batch that is sampled: its keys and values, and what one layer has of it while the prompts are read."""
    shape = model.config.get_text_config()
    heads = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
    size = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    kinds = getattr(shape, "layer_types", None)
    layers = sum("attention" in kind for kind in kinds) if kinds else shape.num_hidden_layers
    layer = _GATED * getattr(shape, "intermediate_size", 4 * shape.hidden_size) + _AROUND * shape.hidden_size
    return int(tokens * bytes_computed(policy) * (2 * layers * heads * size + layer))
