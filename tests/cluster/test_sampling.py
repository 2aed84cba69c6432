"""Dynamic sampling over verl's queue: which groups a batch keeps, when more are sampled, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import transfer_queue

from memagent.cluster import sampler
from memagent.cluster.sampler import GroupsWithSignal, NoSignalError
from memagent.errors import TrainingError

GROUP = 2
TURNS = 11  # the last row of a reading is number 10, which sorts before 9 as text


class Queue:
    """verl's queue in this process, and the readers that fill it."""

    def __init__(self) -> None:
        self.partition = "train"
        self.tags: dict[str, dict[str, Any]] = {}
        self.values: dict[str, dict[str, Any]] = {}

    def add(self, uid: str, rewards: Sequence[float], status: str = "finished") -> None:
        """A group whose readings were worth `rewards`; fewer than GROUP: the others failed."""
        if status == "finished" and len(rewards) < GROUP:
            status = "failure"
        self.tags[uid] = {"is_prompt": True, "global_steps": 1, "status": status}
        for member, reward in enumerate(rewards):
            for turn in range(TURNS):
                key = f"{uid}_{member}_{turn}"
                self.tags[key], self.values[key] = {"seq_len": 5}, {}
            self.values[key] = {"reading": {"name": uid, "reward": reward}}

    def kv_list(self) -> dict[str, dict[str, dict[str, Any]]]:
        return {self.partition: {key: dict(tag) for key, tag in self.tags.items()}}

    def kv_clear(self, *, partition_id: str, keys: Sequence[str]) -> None:
        for key in keys:
            del self.tags[key]
            self.values.pop(key, None)

    def kv_batch_get(self, *, keys: Sequence[str], partition_id: str, select_fields: Sequence[str]) -> dict[str, Any]:
        assert list(select_fields) == ["extra_fields"]
        return {"extra_fields": [self.values[key] for key in keys]}


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue()
    for name in ("kv_list", "kv_clear", "kv_batch_get"):
        monkeypatch.setattr(transfer_queue, name, getattr(queue, name))
    monkeypatch.setattr(sampler, "_POLL", 0.0)
    return queue


def buffer(**changes: Any) -> GroupsWithSignal:
    chosen = {"resample": 0, "sample_more": lambda number: None, "check": lambda: None, "moved": lambda: None}
    return GroupsWithSignal(group=GROUP, **chosen | changes)


class Readers:
    """What is sampled at each attempt: rewards of its groups, in the order of their documents."""

    def __init__(self, queue: Queue, *attempts: Sequence[Sequence[float]]) -> None:
        self.queue, self.attempts, self.asked = queue, attempts, 0

    def sample(self, number: int) -> None:
        # A reading ends when it ends: the last document's first.
        for place, rewards in reversed(list(enumerate(self.attempts[self.asked]))):
            self.queue.add(f"4-{self.asked}-{place}", rewards)
        self.asked += 1

    def batch(self, size: int, resample: int) -> tuple[GroupsWithSignal, Any]:
        groups = buffer(resample=resample, sample_more=self.sample)
        self.sample(size)
        return groups, lambda: groups.sample(5, "train", size)


def uids(keys: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(key.split("_")[0] for key in keys))


def test_a_batch_is_the_first_groups_with_a_signal(queue: Queue) -> None:
    rewards = [(1, 1), *[(0, 0)] * 8, (1, 0), (0, 1), (1, 0)]
    groups, sample = Readers(queue, rewards).batch(2, resample=3)
    batch, metrics = sample()
    assert set(uids(batch.keys)) == {"4-0-9", "4-0-10"}  # in the order of the documents: 10 before 9, were they text
    assert len(batch.keys) == len(batch.tags) == 2 * GROUP * TURNS
    assert metrics == {
        "memagent/groups": 12.0,
        "memagent/kept": 2.0,
        "memagent/no_signal": 9.0,
        "memagent/failed": 0.0,
        "memagent/resampled": 0.0,
    }
    assert sum(one["reward"] for one in groups.readings) == 5.0  # everything that was sampled
    assert len(groups.readings) == 24
    assert set(uids(list(queue.tags))) == {"4-0-9", "4-0-10"}  # nothing of the others is left in the queue


def test_more_is_sampled_until_a_batch_is_full(queue: Queue) -> None:
    readers = Readers(queue, [(1, 1), (1, 0)], [(0, 0), (0, 0)], [(0, 1), (1, 0)], [(0, 1), (1, 0)])
    groups, sample = readers.batch(2, resample=3)
    batch, metrics = sample()
    assert readers.asked == 3
    assert set(uids(batch.keys)) == {"4-0-1", "4-2-0"}
    counted = {name: metrics[f"memagent/{name}"] for name in ("groups", "kept", "no_signal", "resampled")}
    assert counted == {"groups": 6.0, "kept": 2.0, "no_signal": 3.0, "resampled": 2.0}
    assert len(groups.readings) == 12


def test_what_there_is_makes_the_batch_when_the_limit_is_reached(queue: Queue) -> None:
    readers = Readers(queue, [(1, 1), (0, 0)], [(0, 1), (0, 0)], [(0, 1), (1, 0)])
    batch, metrics = readers.batch(2, resample=1)[1]()
    assert readers.asked == 2
    assert set(uids(batch.keys)) == {"4-1-0"}
    assert (metrics["memagent/kept"], metrics["memagent/resampled"]) == (1.0, 1.0)


def test_a_group_of_which_a_reading_failed_is_left_out_and_counted(queue: Queue) -> None:
    batch, metrics = Readers(queue, [(1,), (0, 1), ()]).batch(2, resample=0)[1]()
    assert set(uids(batch.keys)) == {"4-0-1"}
    counted = {name: metrics[f"memagent/{name}"] for name in ("groups", "kept", "no_signal", "failed")}
    assert counted == {"groups": 3.0, "kept": 1.0, "no_signal": 0.0, "failed": 3.0}


def test_without_a_signal_everything_sampled_is_handed_over_to_be_cleared(queue: Queue) -> None:
    groups, sample = Readers(queue, [(1, 1), (0,)], [(0, 0), (1, 1)]).batch(2, resample=1)
    with pytest.raises(NoSignalError) as caught:
        sample()
    assert set(uids(caught.value.batch.keys)) == {"4-0-0", "4-0-1", "4-1-0", "4-1-1"}
    assert set(caught.value.batch.keys) == set(queue.tags)  # groups are gone, their rows go with the batch
    counted = {name: caught.value.metrics[f"memagent/{name}"] for name in ("groups", "kept", "no_signal", "failed")}
    assert counted == {"groups": 4.0, "kept": 0.0, "no_signal": 3.0, "failed": 1.0}
    assert len(groups.readings) == 7


def test_when_every_group_failed_the_run_stops(queue: Queue) -> None:
    readers = Readers(queue, [(1,), ()], [(), (0,)])
    with pytest.raises(TrainingError, match="all 4 groups of batch 5 failed"):
        readers.batch(2, resample=1)[1]()


def test_readers_are_looked_after_while_they_are_waited_for(queue: Queue) -> None:
    looks = 0

    def check() -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise TrainingError("a process that reads documents has died")

    queue.add("4-0-0", [], status="running")
    groups = buffer(check=check)
    with pytest.raises(TrainingError, match="has died"):
        groups.sample(5, "train", 1)
    assert looks == 2


def test_a_validation_is_of_all_held_out_documents_or_of_none(queue: Queue) -> None:
    queue.partition = "val"
    groups = buffer()
    for uid in ("one", "two"):
        queue.add(uid, (1, 1))
    batch, _ = groups.sample(5, "val", 2)
    assert set(uids(batch.keys)) == {"one", "two"}  # a signal is not asked for
    queue.add("three", ())
    with pytest.raises(TrainingError, match="1 held-out documents could not be read"):
        groups.sample(5, "val", 3)


def test_the_watchdog_is_told_whenever_a_group_has_come_to_an_end(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    told = 0

    def moved() -> None:
        nonlocal told
        told += 1

    looks = iter([["running", "pending"], ["running", "running"], ["finished", "running"], ["finished", "finished"]])

    def kv_list() -> dict[str, dict[str, dict[str, Any]]]:
        for place, status in enumerate(next(looks)):
            queue.add(f"4-0-{place}", (1, 0), status)
        return queue.kv_list()

    monkeypatch.setattr(transfer_queue, "kv_list", kv_list)
    groups = buffer(moved=moved)
    groups.sample(5, "train", 2)
    assert told == 3  # two are waited for, one, none


def test_a_batch_of_another_step_starts_its_counts_anew(queue: Queue) -> None:
    readers = Readers(queue, [(1, 0)], [(0, 1)])
    groups, sample = readers.batch(1, resample=0)
    first, _ = sample()
    queue.kv_clear(partition_id="train", keys=first.keys)  # as the trainer does at a batch's end
    readers.sample(1)
    second, metrics = sample()
    assert (uids(first.keys), uids(second.keys)) == (["4-0-0"], ["4-1-0"])
    assert metrics["memagent/groups"] == 1.0
    assert len(groups.readings) == GROUP
