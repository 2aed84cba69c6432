"""Threads and event loops: what must hold when code of others (a watcher, an engine) runs in one for the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_LOOK = 0.1  # seconds between two looks whether the task that waits was cancelled
_CALLED_OFF: ContextVar[threading.Event | None] = ContextVar("called_off", default=None)


@asynccontextmanager
async def together() -> AsyncIterator[asyncio.TaskGroup]:
    """A group of tasks. The first that fails (a broken journal, a bug) stops the others; its error is what is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failures:
        first = failures.exceptions[0]
        error = first.error if isinstance(first, ExitError) else first
        raise error from error.__cause__  # which says why a journal is broken


class ExitError(Exception):
    """A KeyboardInterrupt or SystemExit of a watcher. A task of a group that raised it would end the event loop, before
    the task that waits for the group hears of it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def block_on(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, also where this thread already runs an event loop (a notebook). Interrupted, it is
    cancelled: there, asyncio.run answers the first Ctrl-C by cancelling the task that waits here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    begun = Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]]()

    async def elsewhere() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await work

    here = asyncio.current_task()
    called_off = here.cancelling() if here else 0
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(copy_context().run, asyncio.run, elsewhere())
        try:
            while not wait([result], _LOOK).done:
                if here and here.cancelling() > called_off:
                    raise asyncio.CancelledError
            return result.result()
        except BaseException:
            if not result.done():  # it is this thread that was interrupted
                loop, task = begun.result()
                with suppress(RuntimeError):  # the loop is closed: it has just ended
                    loop.call_soon_threadsafe(task.cancel)
            raise


def in_thread(work: Callable[P, T], *given: P.args, **named: P.kwargs) -> asyncio.Future[T]:
    """Calls code of others (a watcher, an engine) in another thread, and begins at once.

    A StopIteration, which no future can hold, becomes a RuntimeError, as in a generator.
    """

    def whole() -> T:
        try:
            return work(*given, **named)
        except StopIteration as error:
            raise RuntimeError("a watcher or an engine raised StopIteration") from error

    return asyncio.get_running_loop().run_in_executor(None, copy_context().run, whole)


async def cancellable(work: Callable[[], T]) -> T:
    """Does work in a thread that calls `check_cancelled` now and then. Cancelled, this ends once the work has stopped."""
    called_off = threading.Event()

    def whole() -> T:
        _CALLED_OFF.set(called_off)  # in the context of the thread alone
        return work()

    doing = in_thread(whole)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        called_off.set()
        await stopped(doing)
        raise


async def stopped(work: asyncio.Future[Any]) -> None:
    """Waits for work that was called off. If it stops by an error, asyncio would log that, unless somebody asks for it."""
    await asyncio.wait([work])
    if not work.cancelled():
        work.exception()


def check_cancelled() -> None:
    """Raises CancelledError in work of `cancellable` that is to stop."""
    called_off = _CALLED_OFF.get()
    if called_off is not None and called_off.is_set():
        raise asyncio.CancelledError
