"""A run's configuration → verl's. What cannot be carried over is an error; nothing is dropped silently."""

from __future__ import annotations

import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from transformers import AutoConfig

from memagent.cluster.served import served_model
from memagent.core.budgets import Budgets, check_budgets, template_tokens
from memagent.errors import ConfigError
from memagent.models.open import model_folder
from memagent.training.rl_config import RlConfig
from memagent.training.rollout import policy_settings

# Above every ratio there can be (verl's are at most e^20): no dual clip.
_NO_DUAL_CLIP = 1e9


def experiment_of(data: DictConfig) -> tuple[RlConfig, Path]:
    """The run's own configuration and folder, which travel in the table `data` of verl's configuration."""
    values: Any = OmegaConf.to_container(data.memagent)
    return RlConfig.model_validate(values["experiment"]), Path(values["out"])


def verl_config(config: RlConfig, out: Path) -> DictConfig:
    """verl's configuration for the run, complete and checked against its schema. Raises ConfigError."""
    _refuse_what_verl_cannot(config)
    config = _with_absolute_paths(config)
    composed = _composed()
    with open_dict(composed.actor_rollout_ref):  # fields of verl's classes that its files leave out
        for part in ("actor", "ref"):
            composed.actor_rollout_ref[part].fsdp_config.mixed_precision = None
    for name, value in _values(config, out).items():
        OmegaConf.update(composed, name, value, merge=not isinstance(value, dict), force_add="override_config" in name)
    try:
        for name, value in config.cluster.settings.items():
            OmegaConf.update(composed, name, value)
    except (OmegaConfBaseException, AttributeError, KeyError) as error:
        raise ConfigError(f"cluster.settings: {name!r} is no field of verl's configuration: {_line(error)}") from error
    with open_dict(composed):
        travelling = {"experiment": config.model_dump(mode="json", exclude_defaults=True), "out": str(out.resolve())}
        composed.data.memagent = OmegaConf.create(travelling)
    _check(composed)
    return composed


def _refuse_what_verl_cannot(config: RlConfig) -> None:
    refused = {
        "algorithm.normalise": (config.algorithm.normalise != "none", "verl divides by another standard deviation"),
        "update.average": (config.update.average > 0, "verl keeps no average of the weights"),
        "validation.patience": (config.validation.patience > 0, "verl does not stop early"),
        "policy.lora.rank": (config.policy.lora.rank > 0, "adapters have not been carried over to verl yet"),
        "rollout.top_p": (
            config.rollout.top_p < 1 and config.cluster.device == "cuda",
            "servers record log-probabilities of the nucleus, which the learner does not know",
        ),
    }
    for name, (asked, why) in refused.items():
        if asked:
            raise ConfigError(f"{name} is set, and {why}: leave it out with --engine verl")


def _with_absolute_paths(config: RlConfig) -> RlConfig:
    """Processes of a cluster have working directories of their own."""

    def absolute(part: Any) -> Any:
        return part if part.file is None else part.model_copy(update={"file": part.file.resolve()})

    validation = config.validation.model_copy(update={"task": [absolute(part) for part in config.validation.task]})
    return config.model_copy(
        update={
            "start": str(model_folder(config.start).resolve()),
            "books": [path.resolve() for path in config.books],
            "task": [absolute(part) for part in config.task],
            "validation": validation,
        }
    )


def _composed() -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer")


def _values(config: RlConfig, out: Path) -> dict[str, Any]:
    """Fields of verl's configuration by dotted name."""
    cluster, update, algorithm = config.cluster, config.update, config.algorithm
    opened = served_model(Path(config.start))
    settings = policy_settings(config, opened, config.rollout.temperature)
    budgets = settings.budgets
    reply = max(budgets.update_tokens, budgets.answer_tokens)
    template = template_tokens(settings.profile, opened.engine.tokenizer, opened.engine.overhead)
    check_budgets(budgets, template, settings.window)
    _check_micro_batches(update.batch_tokens, settings.window, budgets, template)
    prompt = budgets.question + budgets.chunk + budgets.memory + template
    window = min(settings.window or prompt + reply, prompt + reply)
    cpu = cluster.device == "cpu"
    precision = {"param_dtype": "bf16" if config.policy.bf16 else "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    learner = "actor_rollout_ref.actor"
    sampler = "actor_rollout_ref.rollout"
    model = "actor_rollout_ref.model"
    values = {
        "data.train_files": "training",
        "data.val_files": "validation",
        "data.train_batch_size": config.rollout.prompts,
        "data.gen_batch_size": config.rollout.prompts,
        "data.shuffle": False,
        "data.dataloader_num_workers": 0,
        "data.max_prompt_length": window - reply,
        "data.max_response_length": reply,
        "data.custom_cls.path": "pkg://memagent.cluster.dataset",
        "data.custom_cls.name": "Documents",
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": False,
        "algorithm.rollout_correction.bypass_mode": algorithm.old_logprobs == "sampled",
        f"{model}.path": config.start,
        f"{model}.use_remove_padding": _can_be_packed(Path(config.start)),
        f"{model}.enable_gradient_checkpointing": config.policy.checkpointing,
        f"{learner}.strategy": "fsdp2",
        f"{learner}.fsdp_config.strategy": "fsdp2",
        f"{learner}.fsdp_config.model_dtype": "fp32",
        f"{learner}.fsdp_config.mixed_precision": precision,
        f"{learner}.fsdp_config.param_offload": cluster.offload,
        f"{learner}.fsdp_config.optimizer_offload": cluster.offload,
        f"{learner}.use_torch_compile": not cpu,
        f"{learner}.fsdp_config.use_torch_compile": not cpu,
        f"{learner}.ppo_mini_batch_size": config.rollout.prompts,
        f"{learner}.use_dynamic_bsz": True,
        f"{learner}.ppo_max_token_len_per_gpu": update.batch_tokens,
        f"{learner}.clip_ratio": algorithm.clip_low,
        f"{learner}.clip_ratio_low": algorithm.clip_low,
        f"{learner}.clip_ratio_high": algorithm.clip_high,
        f"{learner}.clip_ratio_c": algorithm.dual_clip or _NO_DUAL_CLIP,
        f"{learner}.loss_agg_mode": {"token": "token-mean", "sequence": "seq-mean-token-mean"}[algorithm.aggregate],
        f"{learner}.use_kl_loss": algorithm.kl > 0,
        f"{learner}.kl_loss_coef": algorithm.kl,
        f"{learner}.kl_loss_type": "low_var_kl",
        f"{learner}.entropy_coeff": algorithm.entropy,
        f"{learner}.calculate_entropy": algorithm.entropy > 0,  # it keeps the logits of whole sequences
        f"{learner}.optim.lr": update.rate,
        f"{learner}.optim.weight_decay": update.weight_decay,
        f"{learner}.optim.betas": list(update.betas),
        f"{learner}.optim.clip_grad": update.clip,
        f"{learner}.grad_clip": update.clip,
        f"{learner}.optim.lr_warmup_steps": 0,
        f"{learner}.checkpoint.save_contents": ["model", "optimizer", "extra"],
        "actor_rollout_ref.ref.fsdp_config.strategy": "fsdp2",
        "actor_rollout_ref.ref.strategy": "fsdp2",
        "actor_rollout_ref.ref.fsdp_config.mixed_precision": precision,  # verl's own default would be bf16
        "actor_rollout_ref.ref.fsdp_config.model_dtype": "fp32",
        "actor_rollout_ref.ref.use_torch_compile": not cpu,
        "actor_rollout_ref.ref.fsdp_config.use_torch_compile": not cpu,
        f"{sampler}.name": cluster.rollout,
        f"{sampler}.n": config.rollout.group,
        f"{sampler}.temperature": config.rollout.temperature,
        f"{sampler}.top_p": config.rollout.top_p,
        f"{sampler}.seed": config.seed,
        f"{sampler}.tensor_model_parallel_size": cluster.tensor_parallel,
        f"{sampler}.gpu_memory_utilization": cluster.memory_share,
        f"{sampler}.max_model_len": window,
        f"{sampler}.dtype": "bfloat16" if config.policy.bf16 else "float32",  # sampled as it is scored
        f"{sampler}.calculate_log_probs": True,
        f"{sampler}.agent.num_workers": cluster.readers,
        f"{sampler}.agent.default_agent_loop": "memagent",
        f"{sampler}.agent.agent_loop_config_path": str(Path(__file__).with_name("agent_loop.yaml")),
        "trainer.project_name": "memagent",
        "trainer.experiment_name": out.name,
        "trainer.logger": ["console"],
        "trainer.nnodes": cluster.nodes,
        "trainer.n_gpus_per_node": cluster.devices,
        "trainer.total_epochs": 1,
        "trainer.total_training_steps": config.steps,
        "trainer.save_freq": config.save_every,
        "trainer.test_freq": config.validation.every if config.validation.task else -1,
        "trainer.val_before_train": bool(config.validation.task),
        "trainer.default_local_dir": str(out.resolve() / "checkpoints"),
        "trainer.max_actor_ckpt_to_keep": 2,
        "trainer.device": cluster.device,
        "transfer_queue.backend.SimpleStorage.total_storage_size": 10_000_000,  # rows: conversations of all attempts
        "reward.num_workers": 1,  # rewards come with the readings
    }
    if cpu:
        values |= {
            f"{model}.override_config": {"attn_implementation": "sdpa"},
            f"{sampler}.free_cache_engine": False,
            "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        }
    return values


def _check_micro_batches(tokens: int, window: int | None, budgets: Budgets, template: int) -> None:
    """verl stops at a row that is longer than a micro-batch; the rows it pads with have 128 tokens."""
    update = template + budgets.question + budgets.chunk + budgets.memory + budgets.update_tokens
    longest = max(128, min(window or update, update))
    if tokens < longest:
        raise ConfigError(
            f"update.batch_tokens is {tokens}, and a conversation can have {longest} tokens: give at least as many"
        )


def _can_be_packed(folder: Path) -> bool:
    """Whether sequences can stand behind one another in a row: only attention keeps them apart, a convolution or a
    recurrent state goes from one into the next."""
    config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
    others = [name for name in config.to_dict() if any(word in name for word in ("conv", "mamba", "ssm", "linear_attn"))]
    kinds = set(getattr(config, "layer_types", None) or ())
    return kinds <= {"full_attention", "sliding_attention"} and hasattr(config, "num_attention_heads") and not others


def _check(composed: DictConfig) -> None:
    """verl's own checks. Raises ConfigError with what it says."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    try:
        with redirect_stdout(StringIO()), warnings.catch_warnings(action="ignore"):  # it tells of every check that passed
            needed = {"use_reference_policy": need_reference_policy(composed), "use_critic": need_critic(composed)}
            validate_config(composed, **needed)
        parts = composed.actor_rollout_ref
        for part in (parts.rollout, parts.model, composed.algorithm):
            omega_conf_to_dataclass(part)
    except Exception as error:  # verl asserts, hydra wraps
        raise ConfigError(f"verl does not take this configuration: {_line(error)}") from error


def _line(error: BaseException) -> str:
    return " ".join(str(error.__cause__ or error).split())[:400] or type(error).__name__
