"""Reads the jobs of a batch on a Ray cluster that is there.

Ray places workers, calls them and says which of them are lost; what is here is which job is whose. Only this process writes
results, and only for calls of its own: a job of a worker that was lost is read again by another, and has one record all the
same.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from typing import Any

from memagent.batch.folder import BatchFolder
from memagent.batch.jobs import Job
from memagent.batch.local import Sink, Tally, Watcher
from memagent.batch.records import failed
from memagent.batch.worker import Setup, Worker
from memagent.errors import MissingExtraError, ModelError
from memagent.ray_cluster import connected, last_line

_POLL = 1.0  # seconds
_TOGETHER = 2  # workers that may be lost at a job before it is read alone: it may be what kills them
_MOST_LOST = 5  # workers that may be lost at it before it fails
_MOST_STARTS = 3  # workers in a row, for each that there is to be, that may die before they are ready


def check_installed() -> Any:
    """Ray. Raises MissingExtraError."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("reading on a Ray cluster", "cluster") from error
    return ray


def run(
    folder: BatchFolder,
    setup: Setup,
    *,
    address: str,
    served: bool,
    at_once: int,
    workers: int | None = None,
    watcher: Watcher | None = None,
) -> Tally:
    """Reads what is left of a batch on the cluster at `address`; "local" starts one that ends with the run.

    A model that is `served` is asked by all workers together for `at_once` documents at a time; in process, each worker
    has a model of its own and reads as many. Raises ModelError if there is no cluster, or no worker can open the model.
    """
    ray = check_installed()
    # Ray prints to standard output what happens to processes, the last of it when it shuts down.
    with redirect_stdout(sys.stderr), connected(address, {}, ModelError, "use --ray local"):
        gpus, count = _places(ray, served, workers)
        share = -(-at_once // count) if served else at_once
        crew = _Crew(ray, setup, Sink(folder, watcher, max(2, at_once)), count, share, gpus)
        crew.work(folder.left())
        return crew.sink.tally


def _places(ray: Any, served: bool, workers: int | None) -> tuple[int, int]:
    """GPUs that a worker needs, and the number of workers: one a GPU for models in process, else one a CPU."""
    there = ray.cluster_resources()
    gpus = 0 if served or not there.get("GPU") else 1
    places = int(there.get("GPU" if gpus else "CPU", 0))
    if not places:
        raise ModelError("the Ray cluster has no CPU that a worker could run on: start Ray with --num-cpus")
    return gpus, workers or places


@dataclass(slots=True, eq=False)
class _Hand:
    """A worker: its actor, how many jobs it has, whether it is for one job `alone`, and whether it is lost."""

    actor: Any
    jobs: int = 0
    alone: bool = False
    lost: bool = False


@dataclass(slots=True)
class _Task:
    """A job with the questions it is read for, and how many workers were lost at it."""

    job: Job
    questions: Sequence[str]
    lost: int = 0


class _Crew:
    """The workers of a run, and what each of them is at."""

    def __init__(self, ray: Any, setup: Setup, sink: Sink, count: int, share: int, gpus: int) -> None:
        self.sink = sink
        self._ray, self._setup, self._share = ray, setup, share
        options = {"num_cpus": 1, "num_gpus": gpus, "max_concurrency": share + 2, "scheduling_strategy": "SPREAD"}
        self._make = ray.remote(Worker).options(**options).remote
        self._count = count
        self._hands: list[_Hand] = []
        self._starting: dict[Any, _Hand] = {}
        self._reading: dict[Any, tuple[_Hand, _Task]] = {}
        self._again: deque[_Task] = deque()
        self._failed_starts = 0

    def work(self, jobs: Iterator[tuple[Job, list[str]]]) -> None:
        """Reads all jobs."""
        tasks = (_Task(job, questions) for job, questions in jobs)
        for _ in range(self._count):
            self._hire()
        while self._hand_out(tasks) or self._reading:
            ready, _ = self._ray.wait([*self._reading, *self._starting], timeout=_POLL)
            for call in ready:
                if call in self._starting:
                    self._started(call)
                else:
                    self._ended(call)
        self.sink.settle()
        self._dismiss()

    def _hire(self) -> None:
        hand = _Hand(self._make(self._setup, self._share))
        self._starting[hand.actor.open.remote()] = hand

    def _hand_out(self, tasks: Iterator[_Task]) -> bool:
        """Gives jobs to workers that have room. Returns whether there are jobs that no worker has."""
        more = True
        for hand in self._hands:
            while hand.jobs < self._share and not hand.alone:
                if (task := self._next(tasks, idle=not hand.jobs)) is None:
                    more = False
                    break
                call = hand.actor.read.remote(task.job, task.questions, task.lost > 0)
                self._reading[call] = hand, task
                hand.jobs += 1
                hand.alone = task.lost >= _TOGETHER
        return more or bool(self._again)

    def _next(self, tasks: Iterator[_Task], *, idle: bool) -> _Task | None:
        """The next job for a worker. One that may be what kills workers is for an idle worker, which reads it alone: it
        takes no others with it."""
        for place, task in enumerate(self._again):
            if idle or task.lost < _TOGETHER:
                del self._again[place]
                return task
        return next(tasks, None)

    def _started(self, call: Any) -> None:
        """Takes in a worker that is ready. Raises ModelError if it cannot open the model, or if all of them die."""
        hand = self._starting.pop(call)
        try:
            refused = self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            self._failed_starts += 1
            if self._failed_starts > _MOST_STARTS * self._count:
                raise ModelError(f"the workers die before they are ready: {last_line(error)}") from error
            self._hire()
            return
        if refused:
            raise ModelError(f"a worker cannot read: {refused}")
        self._failed_starts = 0
        self._hands.append(hand)
        self._tell()

    def _ended(self, call: Any) -> None:
        """Takes in the records of a job, or the loss of its worker."""
        hand, task = self._reading.pop(call)
        hand.jobs -= 1
        hand.alone = False
        try:
            made = self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            raise ModelError(f"a worker cannot go on: {last_line(error)}") from error
        except self._ray.exceptions.RayError as error:
            self._lose(hand)
            self._retry(task, error)
            return
        for record, _ in made:
            self.sink.take(record, None)
        if recorded := [reading for record, reading in made if reading is not None and record["error"] is None]:
            hand.actor.forget.remote(recorded)

    def _lose(self, hand: _Hand) -> None:
        """Puts another worker in the place of one that is gone."""
        if hand.lost:
            return
        hand.lost = True
        self._hands.remove(hand)
        with suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(hand.actor)  # it may be one that only cannot be reached
        self._hire()
        self._tell()

    def _retry(self, task: _Task, error: Exception) -> None:
        task.lost += 1
        if task.lost < _MOST_LOST:
            self._again.append(task)
            return
        gone = ModelError(f"{task.lost} workers were lost at this job, the last one so: {last_line(error)}")
        for question in task.questions:
            self.sink.take(failed(task.job, question, gone), None)

    def _tell(self) -> None:
        self.sink.tally.workers = len(self._hands)
        self.sink.tell()

    def _dismiss(self) -> None:
        """Lets the workers close their journals. One that does not answer is ended with the run."""
        delete = not self.sink.folder.failures
        closing = [hand.actor.close.remote(delete) for hand in self._hands]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=10)
