"""Multi-Conv DAPO on verl's synchronous trainer.

verl counts optimizer steps in rows; a reading has as many rows as it has conversations, so their number would change with
the documents. Here a batch is split by readings into a fixed number of updates, as in the small trainer, and each is padded
to the learners on its own. The metrics of verl are logged under the names of the small trainer.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import ray
import torch
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

from memagent.cluster.documents import training_id
from memagent.cluster.metrics import cells, summary
from memagent.cluster.sampler import GroupsWithSignal, NoSignalError
from memagent.cluster.settings import experiment_of
from memagent.cluster.worker import ReadingWorker
from memagent.errors import TrainingError
from memagent.tasks.samples import generator
from memagent.training.credit import parts
from memagent.training.log import RunLog


class ReadingTrainer(PPOTrainerSync):
    """One batch: readings of `prompts` documents, `group` of each; the groups with a signal; `updates` optimizer steps."""

    def __init__(self, config: Any, progress: Callable[[int | None], None]) -> None:
        """`progress` is told the number of every batch and validation that is finished, and None whenever less is."""
        self.experiment, self.out = experiment_of(config.data)
        self._progress = progress
        self._attempt = 0
        self._updates: list[list[str]] = []  # keys of the rows of each update, padding included
        self._real: list[int] = []  # rows of each that are no padding
        super().__init__(config)

    def init(self) -> None:
        super().init()
        self.log = RunLog(
            self.out,
            step=self.global_steps or -1,
            tensorboard=self.experiment.log.tensorboard,
            wandb=self.experiment.log.wandb,
            config=self.experiment.model_dump(mode="json"),
        )

    def fit(self, agent_loop_manager: Any) -> None:
        with self.log:
            super().fit(agent_loop_manager)

    # documents

    def prepare_step(self) -> dict[str, Any]:
        self._attempt = 0
        return dict(super().prepare_step())

    def _fetch_one_gen_batch(self) -> Any:
        """The next batch of documents, by id. Ids of groups say which, so that their order can be told."""
        step, attempt = self.global_steps - 1, self._attempt
        rows = []
        for place in range(self.experiment.rollout.prompts):
            named = {"document": training_id(step, attempt, place), "uid": f"{step}-{attempt}-{place}"}
            rows.append(self.train_dataset[place] | named)
        self._attempt += 1
        return tu.get_tensordict(collate_fn(rows))

    def _build_replay_buffer(self) -> GroupsWithSignal:
        chosen = self.experiment.rollout
        return GroupsWithSignal(
            group=chosen.group,
            resample=chosen.resample,
            sample_more=self._add_prompts_to_generate,
            check=self._check_readers,
            moved=lambda: self._progress(None),
        )

    def _check_readers(self) -> None:
        """Raises TrainingError when a reader has died: otherwise the run would wait for it until the watchdog stops it."""
        asked = [reader.__ray_ready__.remote() for reader in self.agent_loop_manager.agent_loop_workers]
        answered, _ = ray.wait(asked, num_returns=len(asked), timeout=10)  # the others are busy: the watchdog has a limit
        try:
            ray.get(answered)
        except ray.exceptions.RayError as error:
            raise TrainingError(f"a process that reads documents has died: {str(error).splitlines()[0]}") from error

    # updates

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in self.role_worker_mapping:
            self.role_worker_mapping[role] = ray.remote(ReadingWorker)

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict[str, Any], *_: Any, **__: Any) -> KVBatchMeta:
        """Splits the readings into updates, and pads and orders the rows of each for the learners."""
        learners = self.experiment.cluster.learners
        updates = by_updates(batch.keys, self.experiment.update.updates, self.experiment.seed, self.global_steps - 1)
        tags = dict(zip(batch.keys, batch.tags, strict=True))
        whole = KVBatchMeta(partition_id=batch.partition_id, keys=[], tags=[], extra_info=batch.extra_info)
        self._updates, self._real = [], []
        for keys in updates:
            part = KVBatchMeta(partition_id=batch.partition_id, keys=keys, tags=[tags[key] for key in keys])
            part = upsample_batch_to_divisible_size(part, learners, self.tokenizer.eos_token_id)
            work = calculate_workload(torch.tensor([tag["seq_len"] for tag in part.tags]))
            shares = get_seqlen_balanced_partitions(work, learners, equal_size=True)
            part.reorder([row for share in shares for row in share])
            self._updates.append(list(part.keys))
            self._real.append(len(keys))
            whole.keys += part.keys
            whole.tags += part.tags
        return whole

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """The optimizer steps of a batch."""
        tags = dict(zip(batch.keys, batch.tags, strict=True))
        steps: defaultdict[str, list[float]] = defaultdict(list)
        for keys, real in zip(self._updates, self._real, strict=True):
            part = KVBatchMeta(
                partition_id=batch.partition_id,
                keys=keys,
                tags=[tags[key] for key in keys],
                extra_info={
                    **batch.extra_info,
                    "mini_batch_size": len(keys),
                    "global_batch_size": real,
                    "epochs": 1,
                    "seed": 0,
                    "dataloader_kwargs": {"shuffle": False},
                    "temperature": self.experiment.rollout.temperature,
                    "calculate_entropy": self.config.actor_rollout_ref.actor.calculate_entropy,
                    "rate": self._rate(),
                },
            )
            for name, values in self.actor_rollout_wg.update_actor(part)["metrics"].items():
                steps[name].append(float(np.mean(values)))
            self._check(steps["grad_norm"][-1])
            self._progress(None)
        metrics.update({f"actor/{name}": float(np.mean(values)) for name, values in steps.items()})
        metrics["memagent/updates"] = len(self._updates)
        return batch

    def _check(self, norm: float) -> None:
        """Raises TrainingError for a gradient that is not a number, which verl skips, or has exploded, which it clips."""
        limit = self.experiment.update.explode
        if not norm <= limit:
            raise TrainingError(f"the gradient's norm is {norm:.4g}, the limit (update.explode) is {limit:.4g}")

    def _rate(self) -> float:
        return self.experiment.update.rate_at(self.global_steps - 1)

    # the log

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        """One batch. Its metrics are written before verl writes a checkpoint: a run that goes on from there has them."""
        try:
            batch = super().step(metrics, timing_raw)
        except NoSignalError as nothing:  # as in the small trainer: no update, and on to the next batch
            self.on_sample_end()
            metrics.update(nothing.metrics | {"memagent/updates": 0.0})
            batch, self._updates = nothing.batch, []
        readings = self.replay_buffer.readings
        self.log.metrics(self.global_steps, "train", summary(readings, metrics, self._rate()))
        update = sum(timing_raw.get(name, 0.0) for name in ("old_log_prob", "ref", "adv", "update_actor"))
        self.log.timing(
            self.global_steps,
            {"rollout": timing_raw.get("gen", 0.0), "update": update},
            {
                "rollout": sum(reading["tokens"] for reading in readings),
                "update": sum(tag["seq_len"] for tag in batch.tags) if self._updates else 0,
            },
        )
        self._progress(self.global_steps)
        return batch

    def _compute_metrics(self, *_: Any, **__: Any) -> None:
        """verl's own metrics would be computed from all rows of the batch, fetched into this process."""

    def _validate(self) -> dict[str, Any]:
        began = time.perf_counter()
        found: dict[str, Any] = super()._validate()
        self.log.metrics(self.global_steps, "validation", cells(found, self.val_dataset))
        self.log.timing(self.global_steps, {"validation": time.perf_counter() - began}, {})
        self._progress(self.global_steps)
        return found


def by_updates(keys: Sequence[str], updates: int, seed: int, step: int) -> list[list[str]]:
    """Row keys ("step-attempt-place_member_turn") of each update: groups in the order in which the small trainer shuffles
    them, their readings and turns in order, and as many readings in each update."""
    groups: defaultdict[str, defaultdict[int, list[tuple[int, str]]]] = defaultdict(lambda: defaultdict(list))
    for key in keys:
        group, member, turn = key.rsplit("_", 2)
        groups[group][int(member)].append((int(turn), key))
    order = sorted(groups, key=lambda group: tuple(map(int, group.split("-"))))
    generator(seed, "order", step).shuffle(order)
    readings = [[key for _, key in sorted(groups[group][member])] for group in order for member in sorted(groups[group])]
    return [[key for reading in readings[start:end] for key in reading] for start, end in parts(readings, updates)]
