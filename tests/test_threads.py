"""Work in threads that is called off."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time

import pytest

from memagent.threads import block_on, cancellable, check_cancelled, stopped


@pytest.mark.parametrize("error", [None, ValueError("late"), asyncio.CancelledError()], ids=["ends", "fails", "stops"])
def test_work_that_is_called_off_is_waited_for_and_nothing_is_logged_of_how_it_stopped(caplog, error):
    reached, ended = threading.Event(), []

    def work():
        reached.set()
        while not called_off():
            pass
        ended.append(True)
        if error is not None:
            raise error

    def called_off():
        try:
            check_cancelled()
        except asyncio.CancelledError:
            return True
        return False

    async def run():
        task = asyncio.create_task(cancellable(work))
        await asyncio.to_thread(reached.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()

    asyncio.run(run())
    gc.collect()
    assert ended == [True]
    assert not [record for record in caplog.records if record.name == "asyncio" and record.levelname == "ERROR"]


def test_work_that_was_cancelled_itself_is_waited_for():
    async def run():
        work = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.01, work.cancel)
        await stopped(work)
        return work.cancelled()

    assert asyncio.run(run())


def test_the_first_interrupt_ends_work_that_a_running_loop_waits_for():
    stopped_at = []

    async def work():
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            await asyncio.sleep(20)
        finally:
            stopped_at.append(time.monotonic())

    async def main():
        block_on(work())

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    [stopped] = stopped_at
    assert stopped - began < 10, "it ran to its end"


def test_a_task_that_was_cancelled_before_may_still_wait_for_work():
    results = []

    async def work():
        await asyncio.sleep(0.3)
        return "done"

    async def main():
        asyncio.current_task().cancel()
        results.append(block_on(work()))

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert results == ["done"]
