"""Ctrl-C and SIGTERM stop the program at once, and it prints how to continue.

An interrupt is an exception at an arbitrary place. Libraries replace it by other errors or suppress it, so a flag remembers
it. `timeout` and many shells signal a process twice; the second signal must not disturb the handling of the first. In an
event loop, an exception would leave the other tasks unfinished, so they are cancelled instead. Imports may finish first:
torch runs Python from C++ during its import, and an exception there aborts the process.
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

from memagent.cli.streams import OutputLost

EXIT_CODE = 130
_ECHO = 1.0  # seconds within which another signal counts as the same interrupt
_AGAIN = 0.02  # seconds until the next attempt to stop during an import
_TIMED = hasattr(signal, "setitimer")  # not on Windows


class _Seen:
    last: float | None = None
    held = False


def install() -> None:
    """Installs handlers for SIGINT and SIGTERM, unless the parent process ignores them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)
    if _TIMED:
        signal.signal(signal.SIGALRM, _stop)


def received() -> bool:
    """Whether an interrupt has arrived. It raises no further exceptions, because the program then ends."""
    if _TIMED:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return _Seen.last is not None


def check() -> None:
    """Raises KeyboardInterrupt if an interrupt was suppressed or deferred."""
    if received():
        raise KeyboardInterrupt


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Defers interrupts to the end of the block, for short steps that must complete."""
    _Seen.held = True
    try:
        yield
    finally:
        _Seen.held = False


def leave() -> None:
    """Ends an interrupted program after cleanup, without the interpreter's shutdown, which could be interrupted too."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OutputLost, OSError, ValueError, AttributeError):
            stream.flush()
    gc.collect()  # destructors release the semaphores of worker processes
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
    loop.call_soon_threadsafe(lambda: None)  # wakes the loop


def _importing(frame: FrameType | None) -> bool:
    """Whether the signal interrupted an import."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _running_loop() -> Any:
    """The event loop that the signal interrupted, if any. asyncio may not be imported yet, or only in part."""
    find = getattr(sys.modules.get("asyncio"), "get_running_loop", None)
    try:
        return find() if find is not None else None
    except RuntimeError:
        return None
