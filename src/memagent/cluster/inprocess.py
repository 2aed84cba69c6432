"""Rollouts without vLLM: a server process per learner that samples with this package's own engine.

It is verl's server interface around `LocalEngine`: token ids in, token ids and log-probabilities out, weights pushed by the
learner after each batch. For the CPU, where verl has no server of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.workers.rollout import base
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

from memagent.core import Completion, Sampling
from memagent.models.local import LocalEngine
from memagent.models.sampler import Row

_NAME = "inprocess"
_GATHER = 0.005  # seconds in which requests that come together are put into one batch


class Server:
    """A model and the requests that wait for it: those that have come while a batch ran are the next one."""

    def __init__(self, folder: str) -> None:
        self._engine = LocalEngine(Path(folder), device="cpu", dtype="float32")
        self._weights = dict(self._engine.model.named_parameters())
        self._waiting: list[tuple[Row, asyncio.Future[Completion]]] = []
        self._steps: int | None = None
        self._running: asyncio.Task[None] | None = None

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        """verl's call. `max_tokens` and `temperature` must be given; a `seed` makes the reply repeatable."""
        drawn = Sampling(
            temperature=sampling_params["temperature"],
            top_p=sampling_params.get("top_p", 1.0),
            seed=sampling_params.get("seed"),
        )
        row = Row(prompt=list(prompt_ids), max_tokens=sampling_params["max_tokens"], sampling=drawn)
        reply: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((row, reply))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        done = await reply
        return TokenOutput(
            token_ids=list(done.token_ids or ()),
            log_probs=list(done.logprobs or ()),
            stop_reason="completed",
            extra_fields={"global_steps": self._steps},
        )

    async def update_weights(self, weights: dict[str, torch.Tensor], global_steps: int | None) -> None:
        """Takes new weights. Raises ValueError if they are another model's."""
        unlike = (set(self._weights) ^ set(weights)) - {"lm_head.weight"}  # tied to the embedding, it may stand on one side
        if unlike:
            raise ValueError(f"the learner's weights are not this model's: {sorted(unlike)[:5]}")
        with torch.no_grad():
            for name, value in weights.items():
                if name in self._weights:
                    self._weights[name].copy_(value)
        self._steps = global_steps

    async def nothing(self, *_: Any, **__: Any) -> None:
        """What a server does to share an accelerator's memory: there is none to share."""

    wake_up = sleep = abort_all_requests = resume_generation = clear_kv_cache = nothing
    release_kv_cache = resume_kv_cache = start_profile = stop_profile = nothing

    async def _run(self) -> None:
        await asyncio.sleep(_GATHER)
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                done = await asyncio.to_thread(self._engine.complete, [row for row, _ in batch])
            except Exception as error:  # those who wait get the error, and the server goes on
                for _, reply in batch:
                    reply.set_exception(error)
                continue
            for (_, reply), result in zip(batch, done, strict=True):
                if isinstance(result, Exception):
                    reply.set_exception(result)
                else:
                    reply.set_result(result)


class Replica(RolloutReplica):
    """One server beside each learner."""

    async def launch_servers(self) -> None:
        node = await self.workers[0].__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
        # The pool that verl packs its workers in holds all CPUs: a server takes none of them.
        server = ray.remote(Server).options(
            name=_server_name(self.replica_rank),
            num_cpus=0,
            max_concurrency=self.max_concurrency,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False),
        )
        self.servers = [server.remote(self.model_config.path)]
        self._server_handle = self.servers[0]
        self._server_address = _server_name(self.replica_rank)


class Adapter(BaseRollout):
    """The learner's end: hands new weights to the server of its rank."""

    async def update_weights(self, weights: Iterator[tuple[str, torch.Tensor]], **options: Any) -> None:
        gathered = {name: value.detach().cpu().float() for name, value in weights}
        server = ray.get_actor(_server_name(torch.distributed.get_rank()))
        await server.update_weights.remote(gathered, options.get("global_steps"))

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...


def register_rollout() -> None:
    """Makes it known to verl in this process under the name of `cluster.rollout`."""
    RolloutReplicaRegistry.register(_NAME, lambda: Replica)
    base._ROLLOUT_REGISTRY[_NAME, "async"] = f"{__name__}.Adapter"


def _server_name(rank: int) -> str:
    return f"memagent-rollout-{rank}"
