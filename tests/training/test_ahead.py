"""Batches that are made ahead, by a thread or by processes: the same ones, and clear errors where one ends."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from memagent.errors import TaskError, TrainingError
from memagent.training.ahead import StepBatches, made_ahead
from memagent.training.config import SftConfig
from memagent.training.data import StepMaker, step_batches
from memagent.training.model import new_model
from memagent.training.rows import Batch
from memagent.training.run import Launch
from memagent.training.sft import run


@dataclass
class Numbered:
    """Makes one batch a step, which is its number; another step fails, or ends its process."""

    fails: int = -1
    ends: int = -1
    fault: type[Exception] = TaskError

    def __call__(self, step: int) -> list[tuple[str, Batch]]:
        if step == self.fails:
            raise self.fault(f"step {step} cannot be made")
        if step == self.ends:
            os.kill(os.getpid(), signal.SIGKILL)
        return [("number", Batch([[step]], [[0]], [[step]], [[0]]))]


def taken(ahead: Iterator[StepBatches], count: int) -> list[int]:
    made: list[Any] = [next(ahead) for _ in range(count)]
    return [int(batch.ids[0][0]) for [(_, batch)] in made]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_steps_come_in_order_and_all_of_them(workers: int) -> None:
    ahead = made_ahead(Numbered(), 3, 20, workers)
    assert taken(ahead, 17) == list(range(3, 20))
    ahead.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_wrong_with_a_step_is_raised_when_it_is_its_turn(workers: int) -> None:
    ahead = made_ahead(Numbered(fails=5), 0, 9, workers)
    assert taken(ahead, 5) == [0, 1, 2, 3, 4]
    with pytest.raises(TaskError, match=r"^step 5 cannot be made$"):
        next(ahead)
    ahead.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_fault_in_what_makes_them_is_no_process_that_has_ended(workers: int) -> None:
    ahead = made_ahead(Numbered(fails=1, fault=RecursionError), 0, 9, workers)
    assert taken(ahead, 1) == [0]
    with pytest.raises(RecursionError, match="step 1 cannot be made"):
        next(ahead)
    ahead.close()


def test_a_process_that_is_ended_ends_the_run_with_what_to_do() -> None:
    ahead = made_ahead(Numbered(ends=2), 0, 9, 2)
    with pytest.raises(TrainingError, match=r"a process that makes batches has ended .*fewer `workers`"):
        taken(ahead, 9)
    ahead.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_is_left_when_it_is_closed(workers: int) -> None:
    before, threads = children(), set(threading.enumerate())
    ahead = made_ahead(Numbered(), 0, 1000, workers)
    taken(ahead, 3)
    assert len(children() - before) >= workers
    ahead.close()
    assert not children() - before
    assert not {one for one in threading.enumerate() if not one.daemon} - threads


def children() -> set[int]:
    found = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    tracker = {int(pid) for pid in found if b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()}
    return {int(pid) for pid in found} - tracker


def test_what_is_sent_to_a_process_is_small_and_makes_the_same_batches(config: SftConfig, tmp_path: Path) -> None:
    maker = StepMaker(config, new_model(config, tmp_path / "start"))
    made, plan = maker(2), config.schedule
    of_the_run = {"seed": config.seed, "steps": plan.steps, "batches": plan.batches, "batch_tokens": plan.batch_tokens}
    assert made == step_batches(maker.opened(), [*config.mixture, *config.reading], step=2, **of_the_run)
    sent = pickle.dumps(maker)
    assert len(sent) < 1 << 16  # what a pipe holds: the trainer does not wait for the process
    assert pickle.loads(sent)(2) == made


def test_a_run_is_the_same_whoever_makes_its_batches(config: SftConfig, tmp_path: Path) -> None:
    plan = config.schedule.model_copy(update={"steps": 6})
    for workers in (0, 2):
        changed = config.model_copy(update={"schedule": plan, "workers": workers})
        run(changed, Launch(tmp_path / str(workers)))
    assert metrics(tmp_path / "0") == metrics(tmp_path / "2")
    stopped = config.model_copy(update={"schedule": plan, "workers": 1})
    run(stopped, replace(Launch(tmp_path / "stopped"), stop_after=4))
    run(stopped, Launch(tmp_path / "stopped", resume=True))
    assert metrics(tmp_path / "stopped") == metrics(tmp_path / "0")


def metrics(folder: Path) -> list[str]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if "validation" not in line]
