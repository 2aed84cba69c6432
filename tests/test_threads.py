"""Work in threads that is called off."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from memagent.threads import cancellable, check_cancelled, stopped


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
