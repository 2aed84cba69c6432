"""Ctrl-C and SIGTERM, whenever they come: they stop the program at once, and it says how to go on.

An interrupt is an exception at an arbitrary place, and libraries turn it into other errors or swallow it: a flag remembers
it. `timeout` and many shells signal a process twice, and the second must not break what the first one set off. In an event
loop an exception would strand the other tasks, so there its tasks are cancelled. An import is let finish: torch runs Python
from C++ while it is imported, and an exception there aborts the process.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

EXIT_CODE = 130
_ECHO = 1.0  # seconds in which a signal is the same interrupt as the one before
_AGAIN = 0.02  # seconds until the next try to stop a program that imports
_TIMED = hasattr(signal, "setitimer")  # not on Windows


class _Seen:
    last: float | None = None
    held = False


def install() -> None:
    """Handles SIGINT and SIGTERM from now on, unless the parent had them ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)
    if _TIMED:
        signal.signal(signal.SIGALRM, _stop)


def received() -> bool:
    """Whether an interrupt has come. One that has does not strike any more: what follows is the end of the program."""
    if _TIMED:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return _Seen.last is not None


def check() -> None:
    """Raises KeyboardInterrupt if an interrupt has come, and was swallowed or held back."""
    if received():
        raise KeyboardInterrupt


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Interrupts wait until the block is done. For what takes a moment and must not be torn."""
    _Seen.held = True
    try:
        yield
    finally:
        _Seen.held = False


def leave() -> None:
    """Ends an interrupted program, all being closed: without the interpreter's farewell, which could be interrupted too."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    gc.collect()  # worker processes had semaphores: their destructors give them back
    os._exit(EXIT_CODE)


def _on_signal(number: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    if _Seen.last is not None and now - _Seen.last < _ECHO:
        return
    _Seen.last = now
    sys.unraisablehook = lambda _: None  # an interrupt inside a destructor would show a traceback
    _stop(number, frame)


def _stop(_: int, frame: FrameType | None) -> None:
    if _Seen.held:
        return
    if _TIMED and _importing(frame):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        return
    loop = _running_loop()
    if loop is None:
        raise KeyboardInterrupt
    for task in sys.modules["asyncio"].all_tasks(loop):
        task.cancel()
    loop.call_soon_threadsafe(lambda: None)  # wakes the loop up


def _importing(frame: FrameType | None) -> bool:
    """Whether the signal broke into an import."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _running_loop() -> Any:
    """The event loop that the signal broke into, if any; asyncio may not be imported yet, or not completely."""
    find = getattr(sys.modules.get("asyncio"), "get_running_loop", None)
    try:
        return find() if find is not None else None
    except RuntimeError:
        return None
