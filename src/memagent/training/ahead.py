"""The batches of the steps to come, made while the ones before are computed: in a thread, or in processes of their own.

An accelerator computes faster than one process writes text. A step's batches are a function of the configuration and the
step's number, so a run is the same however many make them.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeAlias

import numpy as np
from torch.utils.data import DataLoader, Dataset

from memagent.errors import MemagentError, TrainingError
from memagent.training.rows import Batch

StepBatches: TypeAlias = list[tuple[str, Batch]]

_STEPS_AHEAD = 4  # of each process
_GONE = re.compile(r"worker \(pid.*(killed|exited)")  # torch has no class of its own for a process that is gone


class Make(Protocol):
    """Makes the batches of a step. It is sent to the processes."""

    def __call__(self, step: int) -> StepBatches: ...


def made_ahead(make: Make, first: int, last: int, workers: int = 0) -> Generator[StepBatches, None, None]:
    """The batches of the steps from `first` to before `last`, in order. `workers` is the number of processes that make
    them; 0: a thread makes those of the next step. Closing it ends the processes.

    Raises what `make` raises, and TrainingError if a process has ended.
    """
    return _by_processes(make, first, last, workers) if workers else _by_a_thread(make, first, last)


def _by_a_thread(make: Make, first: int, last: int) -> Generator[StepBatches, None, None]:
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(make, first)
        for step in range(first, last):
            batches = ahead.result()
            if step + 1 < last:
                ahead = pool.submit(make, step + 1)
            yield batches


def _by_processes(make: Make, first: int, last: int, workers: int) -> Generator[StepBatches, None, None]:
    loader: Any = DataLoader(
        _Steps(make),
        batch_size=None,
        sampler=range(first, last),
        num_workers=workers,
        prefetch_factor=_STEPS_AHEAD,
        multiprocessing_context="spawn",  # a fork would copy locks that threads of torch hold
    )
    found = iter(loader)
    try:
        for _ in range(first, last):
            batches = _received(found)
            if isinstance(batches, MemagentError):
                raise batches
            yield batches
    finally:
        del found  # which ends the processes


def _received(found: Any) -> Any:
    try:
        return next(found)
    except RuntimeError as error:
        if not _GONE.search(str(error)):
            raise
        raise TrainingError(f"a process that makes batches has ended ({error}): resume with fewer `workers`") from error


class _Steps(Dataset[StepBatches | MemagentError]):
    """Batches by the number of their step, as arrays, which travel faster than lists."""

    def __init__(self, make: Make) -> None:
        self._make = make

    def __getitem__(self, step: int) -> StepBatches | MemagentError:
        try:
            return [(name, _as_arrays(batch)) for name, batch in self._make(step)]
        except MemagentError as error:  # torch would raise another one, with a traceback for a message
            return error


def _as_arrays(batch: Batch) -> Batch:
    rectangles: list[Any] = [np.asarray(values) for values in (batch.ids, batch.at, batch.target, batch.kind)]
    return Batch(*rectangles)
