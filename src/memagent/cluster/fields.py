"""The fields of a run's configuration under verl's names, a function for each part of verl's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig

from memagent.cluster.served import served_model
from memagent.core.budgets import check_budgets
from memagent.errors import ConfigError
from memagent.training.rl_config import RlConfig
from memagent.training.rollout import policy_settings, wording_tokens

# Above every ratio there can be (verl's are at most e^20): no dual clip.
_NO_DUAL_CLIP = 1e9
_PADDING = 128  # tokens of the rows that verl pads a batch with


def verl_fields(config: RlConfig, out: Path) -> dict[str, Any]:
    """Values by dotted name. Raises ConfigError for budgets that do not fit the window or the micro-batches."""
    prompt, reply = _lengths(config)
    values = (
        _data(config, prompt, reply)
        | _algorithm(config)
        | _model(config)
        | _learner(config)
        | _reference(config)
        | _rollout(config, prompt + reply)
        | _trainer(config, out)
    )
    return values | (_cpu() if config.cluster.device == "cpu" else {})


def _lengths(config: RlConfig) -> tuple[int, int]:
    """Most tokens of a prompt and of a reply."""
    opened = served_model(Path(config.start))
    settings = policy_settings(config, opened, config.rollout)
    budgets = settings.budgets
    template = wording_tokens(config, opened)
    check_budgets(budgets, template, settings.window)
    reply = max(budgets.update_tokens, budgets.answer_tokens)
    prompt = template + budgets.question + budgets.chunk + budgets.memory
    window = min(settings.window or prompt + reply, prompt + reply)
    longest, given = max(_PADDING, window), config.update.batch_tokens
    if given < longest:  # verl stops at a row that is longer
        raise ConfigError(
            f"update.batch_tokens is {given}, and a conversation can have {longest} tokens: give at least that"
        )
    return window - reply, reply


def _data(config: RlConfig, prompt: int, reply: int) -> dict[str, Any]:
    values = {
        "train_files": "training",
        "val_files": "validation",
        "train_batch_size": config.rollout.prompts,
        "gen_batch_size": config.rollout.prompts,
        "shuffle": False,
        "dataloader_num_workers": 0,
        "max_prompt_length": prompt,
        "max_response_length": reply,
        "custom_cls.path": "pkg://memagent.cluster.dataset",
        "custom_cls.name": "DocumentIds",
    }
    return _under("data", values)


def _algorithm(config: RlConfig) -> dict[str, Any]:
    values = {
        "adv_estimator": "grpo",
        "norm_adv_by_std_in_grpo": False,
        "rollout_correction.bypass_mode": config.algorithm.old_logprobs == "sampled",
    }
    return _under("algorithm", values)


def _model(config: RlConfig) -> dict[str, Any]:
    values = {
        "path": config.start,
        "use_remove_padding": _can_be_packed(Path(config.start)),
        "enable_gradient_checkpointing": config.policy.checkpointing,
    }
    return _under("actor_rollout_ref.model", values)


def _learner(config: RlConfig) -> dict[str, Any]:
    update, algorithm = config.update, config.algorithm
    values = {
        **_sharded(config),
        "fsdp_config.param_offload": config.cluster.offload,
        "fsdp_config.optimizer_offload": config.cluster.offload,
        "ppo_mini_batch_size": config.rollout.prompts,
        "use_dynamic_bsz": True,
        "ppo_max_token_len_per_gpu": update.batch_tokens,
        "clip_ratio": algorithm.clip_low,
        "clip_ratio_low": algorithm.clip_low,
        "clip_ratio_high": algorithm.clip_high,
        "clip_ratio_c": algorithm.dual_clip or _NO_DUAL_CLIP,
        "loss_agg_mode": {"token": "token-mean", "sequence": "seq-mean-token-mean"}[algorithm.aggregate],
        "use_kl_loss": algorithm.kl > 0,
        "kl_loss_coef": algorithm.kl,
        "kl_loss_type": "low_var_kl",
        "entropy_coeff": algorithm.entropy,
        "calculate_entropy": algorithm.entropy > 0,  # it keeps the logits of whole sequences
        "optim.lr": update.rate,
        "optim.weight_decay": update.weight_decay,
        "optim.betas": list(update.betas),
        "optim.clip_grad": update.clip,
        "grad_clip": update.clip,
        "optim.lr_warmup_steps": 0,
        "checkpoint.save_contents": ["model", "optimizer", "extra"],
    }
    return _under("actor_rollout_ref.actor", values)


def _reference(config: RlConfig) -> dict[str, Any]:
    return _under("actor_rollout_ref.ref", _sharded(config))


def _sharded(config: RlConfig) -> dict[str, Any]:
    """Learner and reference compute alike: verl's own default for both would be products in bf16."""
    compiled = config.cluster.device != "cpu"
    kind = "bf16" if config.policy.bf16 else "fp32"
    return {
        "strategy": "fsdp2",
        "use_torch_compile": compiled,
        "fsdp_config.strategy": "fsdp2",
        "fsdp_config.model_dtype": "fp32",
        "fsdp_config.mixed_precision": {"param_dtype": kind, "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
        "fsdp_config.use_torch_compile": compiled,
    }


def _rollout(config: RlConfig, window: int) -> dict[str, Any]:
    cluster = config.cluster
    values = {
        "name": cluster.rollout,
        "n": config.rollout.group,
        "temperature": config.rollout.temperature,
        "top_p": config.rollout.top_p,
        "seed": config.seed,
        "tensor_model_parallel_size": cluster.tensor_parallel,
        "gpu_memory_utilization": cluster.memory_share,
        "max_model_len": window,
        "dtype": "bfloat16" if config.policy.bf16 else "float32",  # sampled as it is scored
        "calculate_log_probs": True,
        "agent.num_workers": cluster.readers,
        "agent.default_agent_loop": "memagent",
        "agent.agent_loop_config_path": str(Path(__file__).with_name("agent_loop.yaml")),
    }
    return _under("actor_rollout_ref.rollout", values)


def _trainer(config: RlConfig, out: Path) -> dict[str, Any]:
    cluster, validation = config.cluster, config.validation
    values = {
        "project_name": "memagent",
        "experiment_name": out.name,
        "logger": ["console"],
        "nnodes": cluster.nodes,
        "n_gpus_per_node": cluster.devices,
        "total_epochs": 1,
        "total_training_steps": config.steps,
        "save_freq": config.save_every,
        "test_freq": validation.every if validation.task else -1,
        "val_before_train": bool(validation.task),
        "default_local_dir": str(out.resolve() / "checkpoints"),
        "max_actor_ckpt_to_keep": 2,
        "device": cluster.device,
    }
    queue = {"transfer_queue.backend.SimpleStorage.total_storage_size": 10_000_000}  # rows: conversations of all attempts
    return _under("trainer", values) | queue | {"reward.num_workers": 1}  # rewards come with the readings


def _cpu() -> dict[str, Any]:
    return {
        "actor_rollout_ref.model.override_config": {"attn_implementation": "sdpa"},
        "actor_rollout_ref.rollout.free_cache_engine": False,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    }


def _under(part: str, values: dict[str, Any]) -> dict[str, Any]:
    return {f"{part}.{name}": value for name, value in values.items()}


def _can_be_packed(folder: Path) -> bool:
    """Whether sequences can stand behind one another in a row: only attention keeps them apart, a convolution or a
    recurrent state goes from one into the next."""
    config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
    others = [name for name in config.to_dict() if any(word in name for word in ("conv", "mamba", "ssm", "linear_attn"))]
    kinds = set(getattr(config, "layer_types", None) or ())
    return kinds <= {"full_attention", "sliding_attention"} and hasattr(config, "num_attention_heads") and not others
