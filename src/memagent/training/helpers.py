"""Further processes that compute with a trainer's own weights: on a CPU, one process for each core does more than threads.

The weights lie in shared memory, so that what the optimizer writes is what every process computes with. Each helper
has a worker, which it builds itself, and one buffer for its gradient. Everything is dealt out by a rule of its own size,
never by who is idle: with the same number of processes, a run is the same.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from memagent.errors import ConfigError, MemagentError, TrainingError

J = TypeVar("J")
R = TypeVar("R")
Parameters = Sequence[tuple[str, torch.nn.Parameter]]


class Worker(Protocol):
    """What computes: here, and in every helper. Its methods take a share of a job."""

    @property
    def parameters(self) -> Parameters: ...


W = TypeVar("W", bound=Worker)


class Helpers(Generic[W]):
    """The worker of this process and those of `count` helpers, each made by `make(*given)`.

    `mine` has the weights that all share, on a CPU; otherwise ConfigError is raised.
    """

    def __init__(self, count: int, mine: W, make: Callable[..., W], *given: Any, threads: int = 1) -> None:
        devices = {value.device.type for _, value in mine.parameters}
        if count and devices != {"cpu"}:
            raise ConfigError(
                f"processes = {count + 1}: processes share weights on a CPU, and these are on {', '.join(devices)}: leave"
                " `processes` out, or set policy.device = 'cpu'"
            )
        self._mine = mine
        self._gradients: list[list[Tensor]] = []
        self._links: list[tuple[Any, Connection]] = []
        context = multiprocessing.get_context("spawn")  # a fork would copy locks that threads of torch hold
        shared = [(name, value.data.share_memory_()) for name, value in mine.parameters] if count else []
        for _ in range(count):
            buffers = [torch.zeros_like(value).share_memory_() for _, value in shared]
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, shared, buffers, threads, make, given), daemon=True)
            process.start()
            there.close()
            self._gradients.append(buffers)
            self._links.append((process, here))

    @property
    def processes(self) -> int:
        return 1 + len(self._links)

    def each(self, do: Callable[[W, J], R], shares: Sequence[J]) -> list[R]:
        """`do(worker, share)` for every share, side by side: the first here, the others in one helper each.

        `do` is a function that a helper can import. Raises what it raises once all are done, and TrainingError if a helper
        has ended.
        """
        links = self._links[: max(0, len(shares) - 1)]
        for (_, link), share in zip(links, shares[1:], strict=True):
            with suppress(OSError):  # of a helper that has ended, the answer says so
                link.send((do, share))
        try:
            found = [do(self._mine, shares[0])] if shares else []
        finally:
            others = [_answer(process, link) for process, link in links]
        for other in others:
            if isinstance(other, Exception):
                raise other
            found.append(other)
        return found

    @torch.no_grad()
    def gather(self, count: int) -> None:
        """Adds the gradients of the first `count` helpers to those of this process."""
        for buffers in self._gradients[:count]:
            for (_, value), buffer in zip(self._mine.parameters, buffers, strict=True):
                value.grad = buffer.clone() if value.grad is None else value.grad.add_(buffer)

    def close(self) -> None:
        """Ends the helpers."""
        for process, link in self._links:
            link.close()
            process.join(5)
            if process.is_alive():
                process.kill()
        self._links = []


def dealt(costs: Sequence[int], hands: int) -> list[list[int]]:
    """Places of `costs`, dealt out to at most so many hands, so that sums are about equal: the dearest first, each to the
    hand with the least. No hand is empty."""
    sums, places = [0] * hands, [list[int]() for _ in range(hands)]
    for place in sorted(range(len(costs)), key=lambda place: -costs[place]):
        least = sums.index(min(sums))
        sums[least] += costs[place]
        places[least].append(place)
    return [sorted(hand) for hand in places if hand]


def _answer(process: Any, link: Connection) -> Any:
    try:
        return link.recv()
    except (EOFError, OSError):
        process.join(5)
        return TrainingError(
            f"a helper process ended with code {process.exitcode} (-9: the system ended it, mostly for want of memory):"
            " resume with fewer processes (--set processes=…)"
        )


def _serve(
    link: Connection,
    shared: Sequence[tuple[str, Tensor]],
    gradients: Sequence[Tensor],
    threads: int,
    make: Callable[..., Worker],
    given: Sequence[Any],
) -> None:
    """A helper's life: until the trainer closes the link, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the trainer gets it too, and ends the helpers
    torch.set_num_threads(threads)
    worker = make(*given)
    mine = dict(worker.parameters)
    for name, value in shared:
        mine[name].data = value
    try:
        while True:
            do, share = link.recv()
            link.send(_done(worker, do, share, gradients))
    except (EOFError, OSError):
        os._exit(0)


def _done(worker: Worker, do: Callable[[Any, Any], Any], share: Any, gradients: Sequence[Tensor]) -> Any:
    """What came of a share: a result, or an exception. Its gradient is moved into the buffers."""
    try:
        result = do(worker, share)
    except MemagentError as error:
        return error
    except Exception as error:  # a fault, whose class and traceback do not survive the way
        traceback.print_exc()
        return TrainingError(f"a helper process failed: {type(error).__name__}: {error}")
    with torch.no_grad():
        for (_, value), buffer in zip(worker.parameters, gradients, strict=True):
            if value.grad is not None:
                buffer.copy_(value.grad)
                value.grad = None
            else:
                buffer.zero_()
    return result
