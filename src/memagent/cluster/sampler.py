"""Dynamic sampling over verl's queue: wait for a batch of groups, keep those with a signal, sample more for the others."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Set
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from memagent.errors import TrainingError
from memagent.training.credit import has_signal

_POLL = 1.0  # seconds; each look fetches the tags of all rows
_CHECK = 5  # polls between two looks at whether the readers are alive
_LOG = "the log of AgentLoopWorkerTQ in Ray's session folder says why"


class NoSignalError(Exception):
    """All readings of every group were worth the same: there is nothing to learn from this batch. Holds what was
    sampled, and the counts."""

    def __init__(self, batch: KVBatchMeta, metrics: dict[str, float]) -> None:
        super().__init__("no group carries a signal")
        self.batch, self.metrics = batch, metrics


class GroupsWithSignal(ReplayBuffer):
    """The groups of a batch, as the small trainer chooses them: up to `resample` more batches are sampled when fewer than
    a batch of groups carry a signal. A group of which a reading failed is left out, and counted.

    `check` is called now and then while readings are waited for, to raise if their readers have died; `moved`, when a group
    has come to an end. `readings` holds what was said of every reading of the last batch, those of groups that were left
    out included.
    """

    def __init__(
        self,
        *,
        group: int,
        resample: int,
        sample_more: Callable[[int], Any],
        check: Callable[[], None],
        moved: Callable[[], None],
    ) -> None:
        super().__init__(
            trainer_mode="sync",
            trainer_config={},
            max_off_policy_threshold=None,
            max_off_policy_strategy="drop",
            sampler_kwargs={},
            poll_interval=_POLL,
            refill_fn=sample_more,
        )
        self._group, self._resample = group, resample
        self._check, self._moved = check, moved
        self.readings: list[dict[str, Any]] = []

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, float]]:
        """Up to `batch_size` groups with a signal. Raises NoSignalError when none has one after all attempts, and
        TrainingError when all have failed, or a held-out document could not be opened at all (a reading of it that fails
        is a row that scores 0)."""
        if partition_id == "val":
            self._wait(partition_id)
            if failed := self.failure_keys[partition_id]:  # verl would leave them out of the mean
                raise TrainingError(f"{len(failed)} held-out documents could not be read: {_LOG}")
            return super().sample(global_steps, partition_id, batch_size)
        self.readings = []
        groups: dict[str, bool] = {}  # whether each carries a signal, in the order of their documents
        counts: defaultdict[str, int] = defaultdict(int)
        for attempt in range(1 + self._resample):
            if attempt:
                self.refill_fn(batch_size)
            self._wait(partition_id)
            groups |= self._judge(partition_id, groups.keys(), counts)
            counts["resampled"] += attempt > 0
            if sum(groups.values()) >= batch_size:
                break
        if counts["broken"] == counts["groups"]:
            raise TrainingError(f"all {counts['groups']} groups of batch {global_steps} failed: {_LOG}")
        kept = [uid for uid, signal in groups.items() if signal][:batch_size]
        counts["kept"] = len(kept)
        metrics = {
            f"memagent/{name}": float(counts[name]) for name in ("groups", "kept", "no_signal", "failed", "resampled")
        }
        if kept:
            self._clear_groups(partition_id, groups.keys() - set(kept))
        batch = self._materialize_batch(partition_id, kept or list(groups), dict(self.partitions[partition_id]))
        if not kept:
            raise NoSignalError(batch, metrics)
        return batch, metrics

    def _wait(self, partition: str) -> None:
        """Until no reading is under way."""
        polls, left = 0, -1
        while True:
            self._sync_metadata_from_transfer_queue()
            waited_for = len(self.pending_keys[partition]) + len(self.running_keys[partition])
            if waited_for != left:
                self._moved()
            if not waited_for:
                return
            left = waited_for
            polls += 1
            if polls % _CHECK == 0:
                self._check()
            time.sleep(_POLL)

    def _judge(self, partition: str, seen: Set[str], counts: dict[str, int]) -> dict[str, bool]:
        """Whether each group that has come to an end since carries a signal, in the order of their documents."""
        failed = self.failure_keys[partition]
        new = sorted((self.finished_keys[partition] | failed) - seen, key=_place)
        rewards = self._rewards(partition, set(new))
        judged = {}
        for uid in new:
            missing = self._group - len(rewards[uid])
            signal = not missing and has_signal(rewards[uid])
            counts["groups"] += 1
            counts["failed"] += missing
            counts["broken"] += missing > 0
            counts["no_signal"] += not missing and not signal
            judged[uid] = signal
        return judged

    def _rewards(self, partition: str, uids: set[str]) -> defaultdict[str, list[float]]:
        """The rewards of each group's readings; notes what is said of the readings."""
        last: dict[str, str] = {}
        for key in self.partitions[partition]:
            reading, _, turn = key.rpartition("_")
            if reading.split("_")[0] in uids and int(turn) >= int(last.get(reading, "_-1").rpartition("_")[2]):
                last[reading] = key
        rewards: defaultdict[str, list[float]] = defaultdict(list)
        if not last:
            return rewards
        keys = sorted(last.values())
        fields = tq.kv_batch_get(keys=keys, partition_id=partition, select_fields=["extra_fields"])["extra_fields"]
        for key, extra in zip(keys, list(fields), strict=True):
            self.readings.append(extra["reading"])
            rewards[key.split("_")[0]].append(extra["reading"]["reward"])
        return rewards


def _place(uid: str) -> tuple[int, ...]:
    """Ids of groups are "step-attempt-place"."""
    return tuple(map(int, uid.split("-")))
