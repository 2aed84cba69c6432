"""The table [cluster] of a configuration: where reinforcement learning runs if not in this process."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from memagent.training.fields import Part, Positive


class ClusterConfig(Part):
    """Where to train with `--engine verl`; the trainer on one machine ignores this table."""

    nodes: Positive = 1
    """Machines; more than one need `address`."""
    devices: Positive = 1
    """Accelerators on each machine; with device `cpu`, processes that learn."""
    device: Literal["cuda", "cpu"] = "cuda"
    """What learns and samples."""
    rollout: Literal["vllm", "sglang", "inprocess"] = "vllm"
    """What samples: a server on the same accelerators, or `inprocess` with device `cpu`."""
    tensor_parallel: Positive = 1
    """Accelerators that share one rollout server: a divisor of those of a machine, or whole machines."""
    memory_share: float = Field(0.5, gt=0, lt=1)
    """The share of an accelerator's memory for the rollout server."""
    offload: bool = False
    """Keeps weights and optimizer states in main memory while the other phase runs."""
    readers: Positive = 8
    """Processes that drive readings (prompts, memories, scores)."""
    watchdog: Positive = 7200
    """Seconds in which nothing is finished (a document, an optimizer step, a validation) after which the run is stopped;
    the first ones include starting up."""
    address: str = ""
    """The address of a running Ray cluster; `auto` is the one of this machine, and an empty text starts Ray here."""
    settings: dict[str, Any] = Field(default={})
    """Fields of verl's own configuration, by dotted name, that do not follow from the other tables."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.device == "cpu") != (self.rollout == "inprocess"):
            raise ValueError(
                f"device = {self.device!r} does not go with rollout = {self.rollout!r}: a cpu samples 'inprocess',"
                " accelerators with 'vllm' or 'sglang'"
            )
        if self.device == "cpu" and self.tensor_parallel > 1:
            raise ValueError("tensor_parallel is for accelerators: leave it at 1 with device = 'cpu'")
        if self.nodes > 1 and not self.address:
            raise ValueError(
                f"nodes = {self.nodes} needs a Ray that runs on them: start one, and give its address ('auto')"
            )
        within, over = self.devices % self.tensor_parallel == 0, self.tensor_parallel % self.devices == 0
        if self.learners % self.tensor_parallel or not (within or over):
            raise ValueError(
                f"{self.nodes} × {self.devices} accelerators cannot be shared out in rollout servers of"
                f" tensor_parallel = {self.tensor_parallel}: give a divisor of the machine's, or whole machines"
            )
        return self

    @property
    def learners(self) -> int:
        """Data-parallel ranks."""
        return self.nodes * self.devices
