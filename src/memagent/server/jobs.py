"""All jobs of a service: they wait, are read a few at a time, and tell whoever listens that they have moved."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from typing import Any

from memagent.core.types import Usage
from memagent.errors import ConfigError, JournalError, MemagentError, ModelError
from memagent.result import Ledger
from memagent.server import log
from memagent.server.metrics import Metrics
from memagent.server.outage import DISK, Outage, away
from memagent.server.queue import FairQueue
from memagent.server.reading import Desk
from memagent.server.store import new_id
from memagent.server.values import Job, JobStatus, Limits
from memagent.session import Progress

_LOG = logging.getLogger("memagent.server")
_FLUSH = 1.0  # seconds between two notes of what a reading has spent
_SET = 0.02  # seconds to wait for a signal that is set already
_AGAIN = 2.0  # seconds after which what could not be noted is tried again
_NOTED = 10.0  # seconds within which a cancelled reading is noted as that, or nobody waits for it
_VAIN = 3  # times that a reading finds away what others have found there, and then fails


_CANCELLED = {"error": "cancelled", "kind": "cancelled"}


class RefusedError(MemagentError):
    """A job is not accepted now. `after` is in how many seconds it may be, `code` the status of the answer."""

    def __init__(self, message: str, after: int, code: int = 429) -> None:
        super().__init__(message)
        self.after, self.code = after, code


@dataclass(slots=True)
class _Live:
    """A job that waits or is read: who waits for it to move, and how far it is. `context` is that of the request that asked
    for it, and so of its trace. `held` is since when it waits for what is away, without a turn between; `outages` how many
    had ended then; `vain` how often it has found something away since others found it there."""

    job: Job
    context: Context = field(default_factory=copy_context)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    progress: Progress | None = None
    began: float = 0.0
    before: int | None = None  # turns that it had when it was begun or gone on with
    seen: int = 0  # turns that it had when it last moved
    flushed: float = 0.0
    spent: int = 0  # tokens of a reading that is answered, those of its verification too
    cancelled: bool = False
    held: float | None = None
    outages: int = 0
    vain: int = 0

    def hold(self, outages: int, patience: float) -> bool:
        """Whether it may wait for what is away. A reading that finds it away again and again, while others have found it
        there, is at fault itself."""
        now = time.monotonic()
        if self.held is None:
            self.held, self.outages, self.vain = now, outages, 0
        self.vain += outages > self.outages
        return now - self.held < patience and self.vain < _VAIN


class Jobs:
    """The jobs of one process. All methods belong to the event loop that `start` was called in."""

    def __init__(self, desk: Desk, limits: Limits, metrics: Metrics) -> None:
        self.desk, self.limits, self.metrics = desk, limits, metrics
        self._queue = FairQueue(limits)
        self._live: dict[str, _Live] = {}
        self._closing = self._ending = self._refusing = False
        self.outage = Outage()
        metrics.watch_queue(lambda: len(self._queue), lambda: self._queue.running, lambda: self.outage.reason is None)

    @property
    def open(self) -> bool:
        """Whether jobs are taken."""
        return not self._closing and not self._refusing

    def refuse(self, seconds: float, then: Callable[[], None]) -> None:
        """Takes no more jobs; those that were taken go on. Calls `then` after some seconds. May be called from a signal
        handler."""
        self._refusing = True
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, then)

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
        self.desk.check(job)
        try:
            self.desk.shelf.check(whole.documents, whole.owner)
        except ConfigError as error:
            if job.parent is None and job.reading is None:
                raise
            raise ConfigError(f"a document of this reading was deleted, and is needed to go on: {error}") from error
        spent, most = self.desk.store.spent(job.owner), self.limits.tokens_per_day
        if most is not None and spent >= most:
            until = 86400 - int(time.time()) % 86400
            raise RefusedError(f"{spent:,} tokens were spent today, the limit is {most:,}: try again tomorrow (UTC)", until)

    def _check_room(self, owner: str) -> None:
        limits, mine = self.limits, self._queue.waiting(owner)
        if not self.open:
            raise RefusedError("the service is shutting down", 30, 503)
        if self._queue.has_room(owner):
            return
        if len(self._queue) >= limits.queue:
            raise RefusedError(f"{limits.queue:,} readings are waiting, no more are taken now", 30)
        if mine >= limits.queue_per_key:
            raise RefusedError(f"{mine:,} of your readings are waiting, the limit is {limits.queue_per_key:,}", 30)

    def _enter(self, job: Job) -> None:
        self._live[job.id] = _Live(job)
        self._queue.put(job)

    def _pump(self) -> None:
        """Begins as many jobs as may be under way: all that there is room for, or during an outage one."""
        while not self._closing and self.outage.may_try():
            if (job := self._queue.take()) is None:
                self.outage.untried()
                return
            live = self._live[job.id]
            live.task = asyncio.create_task(self._run(live), context=live.context)

    async def _run(self, live: _Live) -> None:
        status: JobStatus = "failed"
        values: dict[str, Any] = {}
        missing: str | None = None  # what is away, if the job may wait for it
        try:
            live.began = time.monotonic()
            live.job = await asyncio.to_thread(self.desk.store.change, live.job.id, status="running")
            async with asyncio.timeout(self.limits.deadline):
                result = await self.desk.read(live.job, lambda progress: self._tell(live, progress))
            status, values = "answered", {"result": result.to_json()}
            live.spent = _tokens(result.usage) + _tokens(result.verification)
        except asyncio.CancelledError:
            if not live.cancelled:  # the service ends; the job stays
                return
            status, values = "cancelled", _CANCELLED
        except TimeoutError:
            values = {"error": f"the deadline of {self.limits.deadline:,.0f} s has passed", "kind": "deadline"}
        except Exception as error:
            values, missing = self._failure(live, error)
        finally:
            self._queue.done(live.job)
            self.outage.untried()
            if missing is not None and not self._closing:
                await asyncio.shield(self._held(live, missing))
            elif not self._closing or live.cancelled:
                await asyncio.shield(self._ended(live, status, values))
            self._pump()

    def _failure(self, live: _Live, error: Exception) -> tuple[dict[str, Any], str | None]:
        """What is noted of a job that failed; and what is away, if the job may wait for it."""
        missing = away(error)
        if missing is not None and live.hold(self.outage.over, self.limits.patience):
            return {}, missing
        if missing == DISK:
            return {"error": f"{DISK}: its turns are kept, resume it once there is room", "kind": "disk"}, None
        if isinstance(error, MemagentError):
            return {"error": str(error), "kind": "model" if isinstance(error, ModelError) else "document"}, None
        _LOG.error("%s failed", live.job.id, exc_info=error)
        said = f"an error in memagent ({type(error).__name__}); the log has more"
        return {"error": said, "kind": "internal"}, None

    async def _held(self, live: _Live, reason: str) -> None:
        """Puts a job back among those that wait, until what is away is there again."""
        if self.outage.reason is None:
            log.told(_LOG, "readings wait", reason=reason)
        self._loop.call_later(self.outage.begin(reason), self._pump)
        await self._note(live, lambda: self.desk.store.change(live.job.id, status="queued"))
        live.task = None
        if live.cancelled:
            await self._ended(live, "cancelled", _CANCELLED)
        else:
            self._queue.put(live.job)
            self._wake(live)

    async def _ended(self, live: _Live, status: JobStatus, values: dict[str, Any]) -> None:
        def end() -> Job:
            self._count(live)
            job = self.desk.store.end(live.job.id, status, **values)
            if status in ("failed", "cancelled") and job.reading is not None:
                self._release(job.reading, values["error"])
            return job

        try:
            await self._note(live, end)
            took = time.monotonic() - live.began
            self.metrics.ended(live.job, took)
            _log_end(live, took)
        finally:  # whoever waits is let go, also if the service ends first
            del self._live[live.job.id]
            live.moved.set()

    async def _note(self, live: _Live, note: Callable[[], Job]) -> None:
        """Notes what became of a job, as soon as the disk can be written."""
        told = False
        while True:
            try:
                live.job = await asyncio.to_thread(note)
                return
            except Exception as error:
                if away(error) is None:
                    raise
                if not told:
                    _LOG.exception("what became of %s cannot be noted, and is tried again", live.job.id)
                told = True
            await asyncio.sleep(_AGAIN)

    def _release(self, reading: str, reason: str) -> None:
        if self.desk.journal.show(reading).status == "running":
            self.desk.journal.fail(reading, reason)

    def _tell(self, live: _Live, progress: Progress) -> None:
        """Called by any thread after every turn."""
        if live.before is None:
            live.before = live.seen = progress.ledger.turns
        live.progress = progress
        if progress.ledger.turns > live.seen:
            live.seen, live.held = progress.ledger.turns, None
            self._loop.call_soon_threadsafe(self._answered)
        if time.monotonic() - live.flushed > _FLUSH:
            live.flushed = time.monotonic()
            self._count(live)
        self._loop.call_soon_threadsafe(self._wake, live)

    def _answered(self) -> None:
        """Something came of a turn, so nothing is away."""
        if self.outage.end():
            log.told(_LOG, "readings go on")
            self._pump()

    def _count(self, live: _Live) -> None:
        total = live.spent or (_tokens(live.progress.ledger.usage) if live.progress is not None else 0)
        if total:
            self.metrics.spent(live.job.owner, self.desk.store.spend(live.job, total))

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
        found = {"turns": done, "left": left, "seconds_left": round(took / fresh * left, 1) if fresh > 0 else None}
        return found | ({"held": self.outage.reason} if live.held is not None and live.task is None else {})

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
            await asyncio.wait([asyncio.ensure_future(self._ended(live, "cancelled", _CANCELLED))], timeout=_NOTED)
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
    if signal.is_set():
        await asyncio.sleep(_SET)  # of a job that nobody reads it is always set
    with suppress(TimeoutError):
        await asyncio.wait_for(signal.wait(), timeout)


def _log_end(live: _Live, seconds: float) -> None:
    job, done = live.job, live.progress.ledger if live.progress is not None else Ledger()
    answer = job.result["status"] if job.result is not None else None
    named = {"id": job.id, "key": job.owner, "status": job.status, "kind": job.kind, "answer": answer}
    log.told(_LOG, "reading", **named, turns=done.turns, tokens=_tokens(done.usage), seconds=round(seconds, 3))


def _tokens(usage: Usage) -> int:
    return usage.prompt_tokens + usage.completion_tokens
