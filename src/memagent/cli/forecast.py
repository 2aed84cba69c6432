"""`memagent train … --dry-run`: what a run will take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memagent.cli.console import write

if TYPE_CHECKING:
    from memagent.training.config import SftConfig
    from memagent.training.rl_config import RlConfig


def show(config: RlConfig | SftConfig, tflops: float | None) -> None:
    """Prints a forecast. `tflops`: TFLOP/s of a machine to plan for; by default this one is measured."""
    from memagent.training.forecast import EITHER, forecast_rl, forecast_sft
    from memagent.training.policy import device_of
    from memagent.training.products import measured_flops
    from memagent.training.rl_config import RlConfig

    found = forecast_rl(config) if isinstance(config, RlConfig) else forecast_sft(config)
    adapters = f", {found.trained:,} trained (adapters)" if config.policy.lora.rank else ""
    write(f"model      {found.parameters:,} parameters{adapters}")
    if isinstance(config, RlConfig):
        each = f"{config.rollout.prompts} documents × {config.rollout.group} readings, {found.turns:.1f} turns each"
        write(f"a step     {each}: {found.readings * found.turns:,.0f} conversations")
        write(f"           at most {found.prompt_tokens:,} tokens of prompts and {found.reply_tokens:,} of replies")
        write(f"a run      {found.steps:,} steps, {found.steps * found.readings:,} readings, if no batch is sampled again")
    else:
        write(f"a step     at most {found.prompt_tokens:,} tokens")
        write(f"a run      {found.steps:,} steps, {found.steps * found.prompt_tokens:,} tokens")
    both = [name for name in EITHER if name in found.memory]
    apart = f" ({' and '.join(both)} at different times)" if len(both) > 1 else ""
    each = f" in each of {config.processes} processes, at most" if config.processes > 1 else ""
    write(f"memory     about {_size(found.peak)}{each}{apart}")
    for name, size in found.memory.items():
        write((f"           {_size(size):>8}  {name}", "dim"))
    rate = tflops * 1e12 if tflops else measured_flops(config.policy)
    where = "as given" if tflops else f"as large products reach here, on {device_of(config.policy)}"
    hours = found.flops / rate / 3600
    share = f"; sampling is {found.steps * found.sampling_flops / found.flops:.0%} of it" if found.sampling_flops else ""
    write(f"time       {_hours(hours)} of products at {_speed(rate)}, {where}{share}")
    write(("           if every memory is full; decoding, small layers and waiting come on top", "dim"))


def _size(bytes: int) -> str:
    return f"{bytes / 1e9:,.1f} GB" if bytes >= 1e8 else f"{bytes / 1e6:,.1f} MB"


def _speed(rate: float) -> str:
    """Operations a second, as TFLOP/s or, of a slow machine, as GFLOP/s."""
    return f"{rate / 1e12:,.2f} TFLOP/s" if rate >= 1e11 else f"{rate / 1e9:,.1f} GFLOP/s"


def _hours(hours: float) -> str:
    return f"{hours:,.1f} h" if hours >= 1 else f"{hours * 60:,.1f} min"
