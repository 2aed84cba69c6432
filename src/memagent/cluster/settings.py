"""A run's configuration → verl's, checked by verl. What verl would do otherwise is an error (docs/guide/cluster.md)."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from memagent.cluster.fields import verl_fields
from memagent.errors import ConfigError
from memagent.models.open import model_folder
from memagent.tasks.haystack import is_generated
from memagent.training.rl_config import RlConfig

# Endings of fields that may be changed in `cluster.settings` though they are set here: how something is computed, not what.
_FREE = ("use_torch_compile", "model_dtype", "override_config", "free_cache_engine", "trainer.logger", "storage_size")
# Fields of verl's that the schedule of this package takes the place of.
_UNUSED = tuple(f"actor_rollout_ref.actor.{name}" for name in ("ppo_epochs", "shuffle", "data_loader_seed"))


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
    fields = verl_fields(config, out)
    _refuse_what_is_set_elsewhere(config.cluster.settings, fields)
    for name, value in fields.items():
        OmegaConf.update(composed, name, value, merge=not isinstance(value, dict), force_add="override_config" in name)
    try:
        for name, value in config.cluster.settings.items():
            OmegaConf.update(composed, name, value)
    except (OmegaConfBaseException, AttributeError, KeyError) as error:
        raise ConfigError(f"cluster.settings: {name!r} is not a field of verl's configuration: {_line(error)}") from error
    with open_dict(composed):
        travelling = {"experiment": config.model_dump(mode="json", exclude_defaults=True), "out": str(out.resolve())}
        composed.data.memagent = OmegaConf.create(travelling)
    _check(composed)
    return composed


def _refuse_what_is_set_elsewhere(settings: Mapping[str, Any], fields: Collection[str]) -> None:
    """Two sources for one field would leave a run of which this package and verl think differently."""
    for name in settings:
        inside = [field for field in fields if f"{field}.".startswith(f"{name}.") or name.startswith(f"{field}.")]
        if any(not field.endswith(_FREE) for field in inside) or name in _UNUSED:
            raise ConfigError(
                f"cluster.settings: {name!r} follows from the other tables of the configuration, or is not used: leave it"
                " out"
            )


def _refuse_what_verl_cannot(config: RlConfig) -> None:
    on_gpus = config.cluster.device == "cuda"
    refused = {
        "algorithm.normalise": (config.algorithm.normalise != "none", "verl divides by another standard deviation"),
        "algorithm.turns": (bool(config.algorithm.turns), "verl's advantages are those of whole readings"),
        "update.average": (config.update.average > 0, "verl keeps no average of the weights"),
        "validation.patience": (config.validation.patience > 0, "verl does not stop early"),
        "policy.lora.rank": (config.policy.lora.rank > 0, "adapters have not been carried over to verl yet"),
        "rollout.top_p": (
            config.rollout.top_p < 1 and on_gpus,
            "servers record log-probabilities of the nucleus, which the learner does not know",
        ),
    }
    for name, (asked, why) in refused.items():
        if asked:
            raise ConfigError(f"{name} is set, and {why}: leave it out with --engine verl")
    if on_gpus and not config.policy.bf16:
        raise ConfigError(
            "policy.bf16 is false, and the attention of verl's learners on GPUs takes bfloat16 only: set it to true"
            " (weights and AdamW's states stay in float32)"
        )


def _with_absolute_paths(config: RlConfig) -> RlConfig:
    """Processes of a cluster have working directories of their own."""

    def absolute(part: Any) -> Any:
        return part if part.file is None else part.model_copy(update={"file": part.file.resolve()})

    validation = config.validation.model_copy(update={"task": [absolute(part) for part in config.validation.task]})
    return config.model_copy(
        update={
            "start": str(model_folder(config.start).resolve()),
            "books": [path if is_generated(path) else path.resolve() for path in config.books],
            "task": [absolute(part) for part in config.task],
            "validation": validation,
        }
    )


def _composed() -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer")


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
        raise ConfigError(f"verl refuses this configuration: {_line(error)}") from error


def _line(error: BaseException) -> str:
    return " ".join(str(error.__cause__ or error).split())[:400] or type(error).__name__
