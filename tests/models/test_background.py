"""A loop in a thread of its own: what the waiting thread's interrupt does to the work."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from memagent.models.background import BackgroundLoop


def test_an_interrupt_of_the_waiting_thread_cancels_the_work():
    cancelled = threading.Event()

    async def work() -> None:
        threading.Timer(0.3, os.kill, args=(os.getpid(), signal.SIGINT)).start()  # by then the other thread waits
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    loop = BackgroundLoop("test")
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run(work())
        assert cancelled.wait(10)
    finally:
        loop.close()
