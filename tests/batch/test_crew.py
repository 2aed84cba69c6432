"""Workers of a batch that are lost, with a cluster that is played: a job that ends workers fails alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from memagent.batch import on_ray
from memagent.batch.on_ray import _Crew
from memagent.errors import ModelError
from memagent.ray_cluster import connected


class LostError(Exception):
    """What Ray raises when a worker is gone."""


class TaskFailedError(LostError):
    """What Ray raises when the code of a worker failed."""


class Cluster:
    """Plays Ray. A worker is lost when it reads a job of `deadly`, and at its reads of the numbers in `preempted`."""

    exceptions = SimpleNamespace(RayError=LostError, RayTaskError=TaskFailedError)

    def __init__(self, deadly: Sequence[str] = (), preempted: Sequence[int] = ()) -> None:
        self.deadly, self.preempted = set(deadly), set(preempted)
        self.workers = self.reads = 0
        self.gone = set[int]()
        self.calls = dict[Any, Any]()
        self.lost = dict[str, int]()  # workers that were lost at a job
        self.at = dict[int, list[str]]()  # the jobs that each worker has
        self.company = list[tuple[int, int]]()  # of each job that is given out: losses before, and others at its worker

    def remote(self, _: type) -> Any:
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._actor))

    def _actor(self, *_: Any) -> Any:
        self.workers += 1
        number = self.workers

        def read(job: Any, questions: Sequence[str], again: bool) -> Any:
            self.reads += 1
            call = ("read", number, self.reads)
            self.calls[call] = job
            others = self.at.setdefault(number, [])
            worst = max((self.lost.get(one, 0) for one in [*others, job.id]), default=0)
            self.company.append((worst, len(others)))
            others.append(job.id)
            if job.id in self.deadly or self.reads in self.preempted:
                self.gone.add(number)
            return call

        methods = {"open": lambda: ("open", number), "read": read, "forget": lambda _: None, "close": lambda _: "close"}
        return SimpleNamespace(**{name: SimpleNamespace(remote=method) for name, method in methods.items()})

    def wait(self, calls: Sequence[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        opening = [call for call in calls if call[0] == "open"]
        lost = [call for call in calls if call[0] == "read" and call[1] in self.gone]
        return opening or lost or list(calls)[:1], []

    def get(self, call: Any) -> Any:
        if call[0] == "open":
            return ""
        job = self.calls[call].id
        self.at[call[1]].remove(job)
        if call[1] in self.gone:
            self.lost[job] = self.lost.get(job, 0) + 1
            raise LostError("the worker died")
        return [({"id": self.calls[call].id, "error": None}, None)]

    def kill(self, _: Any) -> None: ...


def recorded(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, jobs: Sequence[str]) -> dict[str, str | None]:
    """The error of each job, read by two workers with four jobs each; every job has one record."""
    monkeypatch.setattr(on_ray, "failed", lambda job, question, error: {"id": job.id, "error": str(error)})
    made: list[dict[str, Any]] = []
    sink: Any = SimpleNamespace(
        take=lambda record, _: made.append(record),
        tell=lambda: None,
        settle=lambda: None,
        tally=SimpleNamespace(workers=0),
        folder=SimpleNamespace(failures=0),
    )
    setup: Any = None
    _Crew(cluster, setup, sink, 2, 4, 0).work(iter([(SimpleNamespace(id=id), ["q?"]) for id in jobs]))  # type: ignore[misc]
    assert sorted(record["id"] for record in made) == sorted(jobs)
    return {record["id"]: record["error"] for record in made}


JOBS = [f"job-{number}" for number in range(30)]


@pytest.mark.parametrize("deadly", [["job-0"], ["job-29"], ["job-3", "job-4", "job-17"]])
def test_a_job_that_ends_workers_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch, deadly: list[str]) -> None:
    cluster = Cluster(deadly)
    errors = recorded(monkeypatch, cluster, JOBS)
    assert {others for lost, others in cluster.company if lost >= 2} == {0}, "it is read alone, and nothing beside it"
    assert max(others for lost, others in cluster.company if lost == 1) > 0, "one loss says little"
    assert [id for id, error in errors.items() if error is None] == [id for id in errors if id not in deadly]
    assert all("5 workers were lost at this job" in str(errors[id]) for id in deadly)


def test_workers_that_are_lost_for_other_reasons_cost_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(preempted=[3, 9, 15, 22, 31, 36])
    assert set(recorded(monkeypatch, cluster, JOBS).values()) == {None}
    assert cluster.workers == 8


@pytest.mark.parametrize(("address", "said"), [("local", "Ray cannot be started here: no room"), ("auto", "or try again")])
def test_a_ray_that_is_not_there_is_told_with_its_way_out(monkeypatch: pytest.MonkeyPatch, address: str, said: str) -> None:
    def init(**_: Any) -> None:
        raise RuntimeError("guesses\nno room")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init, shutdown=lambda: None))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=said), connected(address, {}, ModelError, "try again"):
        pass
