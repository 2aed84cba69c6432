"""verl on a machine without an accelerator: its platform interface and its FSDP2 learner, on the CPU over gloo.

For tests and small experiments. verl loads this module in each of its processes (`environment`), before it asks what
kind of machine it is on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


class _NoMemory(ModuleType):
    """torch.cpu with the questions about device memory that verl asks for its logs."""

    def __getattr__(self, name: str) -> Any:
        if name in ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved"):
            return lambda *_: 0
        if name in ("empty_cache", "ipc_collect", "reset_peak_memory_stats"):
            return lambda *_: None
        if name == "mem_get_info":
            return lambda *_: (0, 0)
        if name in ("get_rng_state", "set_rng_state"):
            return getattr(torch, name)
        if name == "get_device_name":
            return lambda *_: "CPU"
        return getattr(torch.cpu, name)


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """Ray counts learners as its resource "GPU"; what verl asks of the device does nothing."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _NoMemory("cpu")

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return os.environ.get("VERL_PLATFORM") == "cpu"  # asked for by name only

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return os.cpu_count() or 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CPU_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"  # verl counts these before it starts: give Ray as many as there are learners (`ray start --num-gpus`)

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None


def join_group() -> None:
    """Joins the group of learners over gloo. verl would name the backend once for "cpu" and once for the device, and torch
    refuses the same name twice."""
    if not torch.distributed.is_initialized():
        rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        torch.distributed.init_process_group("gloo", rank=rank, world_size=size)


def register_learner() -> None:
    """Makes verl's FSDP2 learner known as the CPU's."""
    from torch.distributed.fsdp import CPUOffloadPolicy
    from verl.workers.engine import EngineRegistry
    from verl.workers.engine.fsdp import transformer_impl

    # Weights that are only looked at (the reference) would be pinned for copies to a device that is not there.
    transformer_impl.CPUOffloadPolicy = lambda pin_memory: CPUOffloadPolicy(pin_memory=False)
    known = EngineRegistry._engines["language_model"]["fsdp2"]
    known.setdefault("cpu", transformer_impl.FSDPEngineWithLMHead)
