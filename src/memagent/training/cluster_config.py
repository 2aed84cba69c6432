"""The table [cluster] of a configuration: where reinforcement learning runs if not in this process."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from memagent.training.fields import Part, Positive


class ClusterConfig(Part):
    """Only `--engine verl` reads it; the trainer on one machine ignores it.

    nodes, devices   machines, and accelerators on each (device "cpu": processes that learn)
    rollout          what samples: a vLLM or SGLang server on the same accelerators, or, for device "cpu", "inprocess"
    tensor_parallel  accelerators that share one rollout server
    memory_share     of an accelerator's memory for that server
    offload          keeps weights and optimizer states in main memory while the other phase runs
    readers          processes that drive readings (prompts, memories, scores)
    watchdog         seconds in which nothing is finished (a document, an optimizer step, a validation) after which the run
                     is stopped; the first ones include starting up
    address          of a running Ray cluster ("auto": the one of this machine); empty: Ray is started here
    settings         fields of verl's own configuration, by dotted name, that go beyond this table
    """

    nodes: Positive = 1
    devices: Positive = 1
    device: Literal["cuda", "cpu"] = "cuda"
    rollout: Literal["vllm", "sglang", "inprocess"] = "vllm"
    tensor_parallel: Positive = 1
    memory_share: float = Field(0.5, gt=0, lt=1)
    offload: bool = False
    readers: Positive = 8
    watchdog: Positive = 7200
    address: str = ""
    settings: dict[str, Any] = Field(default={})

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
