"""An event loop in a separate thread, so that asynchronous clients can serve synchronous callers.

`asyncio.run` refuses to work inside a running loop (Jupyter, an async web handler), and a client's connections belong to
the loop that opened them. One loop per engine solves both: every caller, on any thread or loop, hands its work over.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from memagent.errors import ModelError

T = TypeVar("T")

CLOSED = "this engine is closed"


class BackgroundLoop:
    """Starts with the first coroutine; `close` ends thread and loop. Several threads may share it.

    A process that was forked has no thread of it: there it starts anew.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._process = os.getpid()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Runs `work` on the loop. Cancelling the future cancels the work. Raises ModelError after `close`."""
        try:
            with self._lock:  # so that `close` cancels what it does not refuse
                return asyncio.run_coroutine_threadsafe(work, self._running_loop())
        except (ModelError, RuntimeError):
            work.close()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` and waits for it; an interrupt of the waiting thread cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        finally:
            future.cancel()  # nothing, if it is done

    def close(self, farewell: Coroutine[Any, Any, None] | None = None) -> None:
        """Cancels running work, runs `farewell` (closing clients) and stops the thread. Repeated calls are allowed."""
        self._forget_other_process()
        with self._lock:
            loop, thread, self._loop, self._thread, self._closed = self._loop, self._thread, None, None, True
        if loop is None or thread is None:
            if farewell is not None:
                farewell.close()
            return
        done = asyncio.run_coroutine_threadsafe(_wind_down(farewell), loop)
        done.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
        if thread is not threading.current_thread():  # an engine that is collected there cannot wait for itself
            done.result()
            thread.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        self._forget_other_process()
        if self._closed:
            raise ModelError(CLOSED)
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            # A daemon: a program that forgets to close its engine must still be able to end.
            self._thread = threading.Thread(target=_run, args=[self._loop], name=self._name, daemon=True)
            self._thread.start()
        return self._loop

    def _forget_other_process(self) -> None:
        if self._process != os.getpid():
            self._process, self._loop, self._thread = os.getpid(), None, None


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


async def _wind_down(farewell: Coroutine[Any, Any, None] | None) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    if farewell is not None:
        await farewell
    with suppress(RuntimeError):  # some versions of Python start no thread for it while the interpreter ends
        await asyncio.get_running_loop().shutdown_default_executor()
