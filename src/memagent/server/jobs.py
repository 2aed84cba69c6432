"""All jobs of a service: they wait, are read a few at a time, and tell whoever listens that they have moved."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from typing import Any

from memagent.core.types import Usage
from memagent.errors import JournalError, MemagentError, ModelError
from memagent.result import Ledger
from memagent.server import log
from memagent.server.metrics import Metrics
from memagent.server.queue import FairQueue
from memagent.server.reading import Desk
from memagent.server.store import new_id
from memagent.server.values import Job, JobStatus, Limits
from memagent.session import Progress

_LOG = logging.getLogger("memagent.server")
_FLUSH = 1.0  # seconds between two notes of what a reading has spent


class RefusedError(MemagentError):
    """A job is not accepted now. `after` is in how many seconds it may be."""

    def __init__(self, message: str, after: int) -> None:
        super().__init__(message)
        self.after = after


@dataclass(slots=True)
class _Live:
    """A job that waits or is read: who waits for it to move, and how far it is. `context` is that of the request that asked
    for it, and so of its trace."""

    job: Job
    context: Context = field(default_factory=copy_context)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    progress: Progress | None = None
    began: float = 0.0
    before: int | None = None  # turns that it had when it was begun or gone on with
    flushed: float = 0.0
    cancelled: bool = False


class Jobs:
    """The jobs of one process. All methods belong to the event loop that `start` was called in."""

    def __init__(self, desk: Desk, limits: Limits, metrics: Metrics) -> None:
        self.desk, self.limits, self.metrics = desk, limits, metrics
        self._queue = FairQueue(limits)
        self._live: dict[str, _Live] = {}
        self._closing = self._ending = False
        metrics.watch_queue(lambda: len(self._queue), lambda: self._queue.running)

    @property
    def open(self) -> bool:
        """Whether jobs are taken."""
        return not self._closing

    async def start(self) -> None:
        """Goes on with what was waiting or under way when the service ended."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self.desk.store.tidy)
        unfinished = await asyncio.to_thread(self.desk.store.unfinished)
        await asyncio.to_thread(self.desk.forget_unnoted, unfinished)
        for job in unfinished:
            if job.kept:
                self._enter(job)
            else:  # nobody can ask for its answer any more
                await asyncio.to_thread(self.forget, job)
        self._pump()
        self._sweeping = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        """Stops reading. What was under way is gone on with by the next start."""
        self._closing = True
        tasks = [self._sweeping, *(live.task for live in self._live.values() if live.task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def submit(self, job: Job) -> Job:
        """Accepts a job, which is on disk when this returns. Raises RefusedError, ConfigError or DocumentError."""
        await asyncio.to_thread(self._check, job)
        self._check_room(job.owner)
        job = replace(job, id=new_id("reading"), created=time.time())
        await asyncio.to_thread(self.desk.store.add, job)
        self._enter(job)
        self._pump()
        return job

    async def resume(self, job: Job) -> Job:
        """Goes on with a job that was cancelled or has failed, from the turn it had reached. Raises what `submit` does."""
        await asyncio.to_thread(self._check, job)
        self._check_room(job.owner)
        again = {"status": "queued", "ended": None, "error": None, "kind": None}
        job = await asyncio.to_thread(lambda: self.desk.store.change(job.id, **again))
        if job.id not in self._live:
            self._enter(job)
            self._pump()
        return job

    def _check(self, job: Job) -> None:
        whole = self.desk.whole(job)
        self.desk.settings(job)
        self.desk.shelf.check(whole.documents, whole.owner)
        spent, most = self.desk.store.spent(job.owner), self.limits.tokens_per_day
        if most is not None and spent >= most:
            until = 86400 - int(time.time()) % 86400
            raise RefusedError(f"{spent:,} tokens were spent today, the limit is {most:,}: try again tomorrow (UTC)", until)

    def _check_room(self, owner: str) -> None:
        limits, mine = self.limits, self._queue.waiting(owner)
        if self._closing:
            raise RefusedError("the service is shutting down", 30)
        if len(self._queue) >= limits.queue:
            raise RefusedError(f"{limits.queue:,} readings are waiting, no more are taken now", 30)
        if mine >= limits.queue_per_key:
            raise RefusedError(f"{mine:,} of your readings are waiting, the limit is {limits.queue_per_key:,}", 30)

    def _enter(self, job: Job) -> None:
        self._live[job.id] = _Live(job)
        self._queue.put(job)

    def _pump(self) -> None:
        """Begins as many jobs as may be under way."""
        while not self._closing and (job := self._queue.take()) is not None:
            live = self._live[job.id]
            live.task = asyncio.create_task(self._run(live), context=live.context)

    async def _run(self, live: _Live) -> None:
        status: JobStatus = "failed"
        values: dict[str, Any] = {}
        try:
            live.job = await asyncio.to_thread(self.desk.store.change, live.job.id, status="running")
            live.began = time.monotonic()
            async with asyncio.timeout(self.limits.deadline):
                result = await self.desk.read(live.job, lambda progress: self._tell(live, progress))
            status, values = "answered", {"result": result.to_json()}
            self.metrics.answered(result)
            await asyncio.to_thread(self._spend, live.job, _tokens(result.usage) + _tokens(result.verification))
        except asyncio.CancelledError:
            if not live.cancelled:  # the service ends; the job stays
                return
            status, values = "cancelled", {"error": "cancelled", "kind": "cancelled"}
        except TimeoutError:
            values = {"error": f"the deadline of {self.limits.deadline:,.0f} s has passed", "kind": "deadline"}
        except MemagentError as error:
            values = {"error": str(error), "kind": "model" if isinstance(error, ModelError) else "document"}
        except Exception as error:
            _LOG.exception("%s failed", live.job.id)
            name = type(error).__name__
            values = {"error": f"an error in memagent ({name}); the log has more", "kind": "internal"}
        finally:
            self._queue.done(live.job)
            if not self._closing or live.cancelled:
                await asyncio.shield(self._ended(live, status, values))
            self._pump()

    async def _ended(self, live: _Live, status: JobStatus, values: dict[str, Any]) -> None:
        try:
            await asyncio.to_thread(self._count, live)
            live.job = await asyncio.to_thread(lambda: self.desk.store.end(live.job.id, status, **values))
            if status in ("failed", "cancelled") and live.job.reading is not None:
                await asyncio.to_thread(self._release, live.job.reading, values["error"])
            took = time.monotonic() - live.began
            self.metrics.ended(status, took)
            _log_end(live, took)
        finally:  # whoever waits is let go, also if the disk is full
            del self._live[live.job.id]
            live.moved.set()

    def _release(self, reading: str, reason: str) -> None:
        if self.desk.journal.show(reading).status == "running":
            self.desk.journal.fail(reading, reason)

    def _tell(self, live: _Live, progress: Progress) -> None:
        """Called by any thread after every turn."""
        if live.before is None:
            live.before = progress.ledger.turns
        live.progress = progress
        if time.monotonic() - live.flushed > _FLUSH:
            live.flushed = time.monotonic()
            self._count(live)
        self._loop.call_soon_threadsafe(self._wake, live)

    def _count(self, live: _Live) -> None:
        if live.progress is not None:
            self._spend(live.job, _tokens(live.progress.ledger.usage))

    def _spend(self, job: Job, total: int) -> None:
        self.metrics.spent(job.owner, self.desk.store.spend(job, total))

    @staticmethod
    def _wake(live: _Live) -> None:
        moved, live.moved = live.moved, asyncio.Event()
        moved.set()

    def look(self, job: Job) -> dict[str, Any]:
        """How far a job is: turns that were done and are planned, and the seconds that it may still take."""
        live = self._live.get(job.id)
        progress = live.progress if live else None
        if live is None or progress is None:
            return {}
        done, left = progress.ledger.turns, progress.plan.reader.left(progress.plan, progress.state)
        fresh, took = done - (live.before or 0), time.monotonic() - live.began
        return {"turns": done, "left": left, "seconds_left": round(took / fresh * left, 1) if fresh > 0 else None}

    def signal(self, job: Job) -> asyncio.Event:
        """What is set when a job next moves, or is over, or the service ends. Take it before looking at the job, so that no
        move is missed between."""
        if (live := self._live.get(job.id)) is not None:
            return live.moved
        over = asyncio.Event()
        over.set()
        return over

    @property
    def ending(self) -> bool:
        """Whether streams are to end, because the service does."""
        return self._ending

    def hang_up(self) -> None:
        """Lets those who listen to jobs know that the service ends. May be called from a signal handler."""
        self._ending = True
        for live in list(self._live.values()):
            self._loop.call_soon_threadsafe(self._wake, live)

    async def cancel(self, job: Job) -> Job:
        """Ends a job that is not over, and waits until it has."""
        live = self._live.get(job.id)
        if live is None:
            return job
        live.cancelled = True
        if self._queue.withdraw(job.id):
            live.began = time.monotonic()
            await self._ended(live, "cancelled", {"error": "cancelled", "kind": "cancelled"})
        elif live.task is not None:
            live.task.cancel()
            await asyncio.wait([live.task])
        return live.job

    def forget(self, job: Job) -> None:
        """Deletes a job that is over, with its reading and what came with its request. If this is cut short, doing it again
        deletes the rest, or the next start does."""
        desk = self.desk
        if job.reading is not None:
            with suppress(JournalError):  # deleted by hand
                desk.journal.delete(job.reading)
        desk.store.remove(job.id)
        for document in job.documents:
            if document.startswith("part-") and (file := desk.store.file(document, job.owner)) is not None:
                desk.store.drop(file)

    async def _sweep(self) -> None:
        """Deletes what is too old, now and every hour."""
        while (days := self.limits.keep_days) is not None:
            old = await asyncio.to_thread(self.desk.store.ended_before, time.time() - 86400 * days)
            for job in old:
                try:
                    await asyncio.to_thread(self.forget, job)
                except Exception:  # one that cannot be deleted now is tried again in an hour, and keeps none of the others
                    _LOG.exception("the reading %s cannot be deleted, which is too old", job.id)
            await asyncio.sleep(3600)

    async def wait(self, job: Job) -> Job:
        """Waits until a job is over, and returns it."""
        live = self._live.get(job.id)
        while live is not None and not live.job.over:
            await live.moved.wait()
            live = self._live.get(job.id)
        found = await asyncio.to_thread(self.desk.store.job, job.id, job.owner)
        return found or job


async def moved(signal: asyncio.Event, timeout: float) -> None:
    """Waits for a signal, or until the time is over."""
    with suppress(TimeoutError):
        await asyncio.wait_for(signal.wait(), timeout)


def _log_end(live: _Live, seconds: float) -> None:
    job, done = live.job, live.progress.ledger if live.progress is not None else Ledger()
    answer = job.result["status"] if job.result is not None else None
    named = {"id": job.id, "key": job.owner, "status": job.status, "kind": job.kind, "answer": answer}
    log.told(_LOG, "reading", **named, turns=done.turns, tokens=_tokens(done.usage), seconds=round(seconds, 3))


def _tokens(usage: Usage) -> int:
    return usage.prompt_tokens + usage.completion_tokens
