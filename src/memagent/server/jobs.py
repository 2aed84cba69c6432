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
from memagent.result import Ledger, Reading
from memagent.server import log
from memagent.server.metrics import Metrics
from memagent.server.outage import DISK, Outage, away
from memagent.server.queue import FairQueue
from memagent.server.reading import Desk
from memagent.server.store import new_id
from memagent.server.values import Job, JobStatus, Limits
from memagent.session import Progress
from memagent.threads import cancellable

_LOG = logging.getLogger("memagent.server")
_FLUSH = 1.0  # seconds between two notes of what a reading has spent
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
    for it, and so of its trace.

    `task` sees to the job from its begin to what is noted of its end, and is never cancelled; `work` is the reading in it,
    which may be. `held` is since when it waits for what is away, without a turn between; `outages` how many had ended when
    it last found something away; `vain` how often it did, though others had found it there since the time before.
    """

    job: Job
    context: Context = field(default_factory=copy_context)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    work: asyncio.Task[Reading] | None = None
    progress: Progress | None = None
    first: float | None = None  # when it was first begun
    began: float = 0.0  # when it was begun or gone on with
    before: int | None = None  # turns that it had then
    seen: int = 0  # turns that it had when it last moved
    flushed: float = 0.0
    spent: int = 0  # tokens of a reading that is answered, those of its verification too
    cancelled: bool = False
    held: float | None = None
    outages: int = 0
    vain: int = 0

    @property
    def seconds(self) -> float:
        """Since it was first begun."""
        return time.monotonic() - self.first if self.first is not None else 0.0

    def hold(self, outages: int, patience: float) -> bool:
        """Whether it may wait for what is away. A reading that finds it away again and again, while others find it there,
        is at fault itself."""
        now = time.monotonic()
        if self.held is None:
            self.held, self.outages, self.vain = now, outages, 0
        if outages > self.outages:
            self.outages, self.vain = outages, self.vain + 1
        return now - self.held < patience and self.vain < _VAIN


class Jobs:
    """The jobs of one process. All methods belong to the event loop that `start` was called in."""

    def __init__(self, desk: Desk, limits: Limits, metrics: Metrics) -> None:
        self.desk, self.limits, self.metrics = desk, limits, metrics
        self._queue = FairQueue(limits)
        self._live: dict[str, _Live] = {}
        self._closing = self._ending = self._refusing = False
        self.outage = Outage()
        self._timer: asyncio.TimerHandle | None = None
        self._resuming = set[str]()
        self._entering = asyncio.Lock()  # from the look for room until a job waits: those that come together count too
        self._missed = False  # something was away, and no turn has been answered since
        metrics.watch_queue(lambda: len(self._queue), lambda: self._queue.running, lambda: not self._missed)

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
        self._sweeping.cancel()
        lives = list(self._live.values())
        for live in lives:
            if live.work is not None:
                live.work.cancel()
        await asyncio.gather(self._sweeping, *(live.task for live in lives if live.task), return_exceptions=True)

    async def submit(self, job: Job) -> Job:
        """Accepts a job, which is on disk when this returns. Raises RefusedError, ConfigError or DocumentError."""
        await asyncio.to_thread(self._check, job)
        async with self._entering:
            self._check_room(job.owner)
            job = replace(job, id=new_id("reading"), created=time.time())
            try:
                await cancellable(lambda: self.desk.store.add(job))
            except asyncio.CancelledError:  # its documents are taken back
                self.desk.store.remove(job.id)
                raise
            self._enter(job)
        self._pump()
        return job

    async def resume(self, job: Job) -> Job:
        """Goes on with a job that was cancelled or has failed, from the turn it had reached; another stays as it is. Raises
        what `submit` does."""
        await asyncio.to_thread(self._check, job)
        if (live := self._live.get(job.id)) is not None and live.task is not None:
            await asyncio.wait([live.task], timeout=_NOTED)  # what became of it is being noted
        if job.id in self._live or job.id in self._resuming:
            raise RefusedError(f"the reading {job.id} is under way", 5, 409)
        self._resuming.add(job.id)
        try:
            found = await asyncio.to_thread(self.desk.store.job, job.id, job.owner)
            if found is None or found.status not in ("failed", "cancelled"):
                return found or job
            again = {"status": "queued", "ended": None, "error": None, "kind": None}
            async with self._entering:
                self._check_room(job.owner)
                job = await cancellable(lambda: self.desk.store.change(job.id, **again))
                self._enter(job)
        finally:
            self._resuming.discard(job.id)
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
        if self.outage.reason is None and self._queue.has_room(owner):
            return
        if len(self._queue) >= limits.queue:
            raise RefusedError(f"{limits.queue:,} readings are waiting, no more are taken now", 30)
        if mine >= limits.queue_per_key:
            raise RefusedError(f"{mine:,} of your readings are waiting, the limit is {limits.queue_per_key:,}", 30)

    def _enter(self, job: Job) -> None:
        self._live[job.id] = _Live(job)
        self._queue.put(job)

    def _pump(self) -> None:
        """Begins as many jobs as may be under way: all that there is room for, or during an outage one, when it is time."""
        while not self._closing:
            if not self.outage.may_try():
                self._pump_later()
                return
            if (job := self._queue.take()) is None:
                self.outage.untried()
                if not self._live:  # nobody is left who would find out that it is over
                    self.outage.end()
                return
            live = self._live[job.id]
            live.work = asyncio.create_task(self._read(live), context=live.context)
            live.task = asyncio.create_task(self._run(live, live.work), context=live.context)

    def _pump_later(self) -> None:
        pause = self.outage.pause
        if self._timer is None and pause is not None:
            self._timer = self._loop.call_later(pause, self._pump_again)

    def _pump_again(self) -> None:
        self._timer = None
        self._pump()

    async def _run(self, live: _Live, work: asyncio.Task[Reading]) -> None:
        """Waits for the reading of a job, and notes what became of it."""
        status: JobStatus = "failed"
        values: dict[str, Any] = {}
        missing: str | None = None  # what is away, if the job may wait for it
        ends = False  # the service does
        try:
            result = await work
            status, values = "answered", {"result": result.to_json()}
            live.spent = _tokens(result.usage) + _tokens(result.verification)
            self._answered()
        except asyncio.CancelledError:
            status, values = "cancelled", _CANCELLED
            ends = not live.cancelled
        except TimeoutError:
            values = {"error": f"the deadline of {self.limits.deadline:,.0f} s has passed", "kind": "deadline"}
        except Exception as error:
            values, missing = self._failure(live, error)
        finally:
            live.work = None
            self._queue.done(live.job)
            self.outage.untried()
        try:
            if ends or (self._closing and not live.cancelled):
                return  # the job stays as it is, for the next start
            if missing is not None and not live.cancelled:
                await self._held(live, missing)
            else:
                await self._ended(live, *(("cancelled", _CANCELLED) if missing is not None else (status, values)))
        finally:
            self._pump()

    async def _read(self, live: _Live) -> Reading:
        live.began = time.monotonic()
        live.first = live.first or live.began
        live.job = await cancellable(lambda: self.desk.store.change(live.job.id, status="running"))
        left = self.limits.deadline - live.seconds if self.limits.deadline is not None else None
        async with asyncio.timeout(left):
            return await self.desk.read(live.job, lambda progress: self._tell(live, progress))

    def _failure(self, live: _Live, error: Exception) -> tuple[dict[str, Any], str | None]:
        """What is noted of a job that failed; and what is away, if the job may wait for it."""
        missing = away(error)
        self._missed |= missing is not None
        if missing is not None and live.hold(self.outage.over, self.limits.patience):
            return {}, missing
        if missing == DISK:
            return {"error": f"{DISK}: its turns are kept, resume it once there is room", "kind": "disk"}, None
        if isinstance(error, MemagentError):
            return {"error": self.desk.told(error), "kind": "model" if isinstance(error, ModelError) else "document"}, None
        _LOG.error("%s failed", live.job.id, exc_info=error)
        said = f"an error in memagent ({type(error).__name__}); the log has more"
        return {"error": said, "kind": "internal"}, None

    async def _held(self, live: _Live, reason: str) -> None:
        """Puts a job back among those that wait, until what is away is there again."""
        if self.outage.reason is None:
            log.told(_LOG, "readings wait", reason=reason)
        self.outage.begin(reason)
        await self._note(live, lambda: self.desk.store.change(live.job.id, status="queued"))
        if live.cancelled:
            await self._ended(live, "cancelled", _CANCELLED)
        elif live.job.status != "queued":
            self._let_go(live)
        else:
            live.task, live.before = None, None
            self._queue.put(live.job)
            self._wake(live)

    async def _ended(self, live: _Live, status: JobStatus, values: dict[str, Any]) -> None:
        def end() -> Job:
            self._count(live)
            if status in ("failed", "cancelled"):
                self._release(live.job, values["error"])
            return self.desk.store.end(live.job.id, status, **values)

        try:
            await self._note(live, end)
            if live.job.over:
                self.metrics.ended(live.job, live.seconds)
                _log_end(live)
        finally:
            self._let_go(live)

    def _let_go(self, live: _Live) -> None:
        """Whoever waits for a job is let go: it is over, or what became of it cannot be noted."""
        del self._live[live.job.id]
        live.moved.set()
        self._pump()

    async def _note(self, live: _Live, note: Callable[[], Job]) -> None:
        """Notes what became of a job, as soon as the disk can be written. If the service ends before, or something else is
        wrong, the job stays as it was, and the next start goes on with it."""
        told = False
        while True:
            try:
                live.job = await asyncio.to_thread(note)
                return
            except Exception as error:
                if not told:
                    _LOG.exception("what became of %s cannot be noted", live.job.id)
                told = True
                if self._closing or away(error) is None:
                    return
            await asyncio.sleep(_AGAIN)

    def _release(self, job: Job, reason: str) -> None:
        """Tells the journal that a reading which had begun is not read on."""
        found = self.desk.store.job(job.id, job.owner)
        if found is None or found.reading is None:
            return
        try:
            if self.desk.journal.show(found.reading).status == "running":
                self.desk.journal.fail(found.reading, reason)
        except JournalError as error:
            if away(error) is not None:
                raise
            _LOG.warning("the journal has no reading of %s that could be ended: %s", job.id, error)  # deleted by hand

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
        self._missed = False
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
        if live is None:
            return {}
        held = {"held": self.outage.reason} if live.held is not None and live.task is None else {}
        if (progress := live.progress) is None:
            return held
        done, left = progress.ledger.turns, progress.plan.reader.left(progress.plan, progress.state)
        fresh, took = done - (live.before if live.before is not None else done), time.monotonic() - live.began
        return {"turns": done, "left": left, "seconds_left": round(took / fresh * left, 1) if fresh > 0 else None, **held}

    def signal(self, job: Job) -> asyncio.Event:
        """What is set when a job next moves, or is over, or the service ends. Take it before looking at the job, so that no
        move is missed between: a job that is over when this is called is seen to be."""
        live = self._live.get(job.id)
        return live.moved if live is not None else asyncio.Event()

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
        """Ends a job that is not over, and waits until it has; but not for long where the disk is full. Then it is not
        over."""
        live = self._live.get(job.id)
        if live is None:  # it has ended since it was looked up
            return await asyncio.to_thread(self.desk.store.job, job.id, job.owner) or job
        live.cancelled = True
        if self._queue.withdraw(job.id):
            live.task = asyncio.create_task(self._ended(live, "cancelled", _CANCELLED))
        elif live.work is not None:
            live.work.cancel()
        if live.task is not None:
            await asyncio.wait([live.task], timeout=_NOTED)
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
            for job in await self._old(time.time() - 86400 * days):
                if job.id in self._live or job.id in self._resuming:
                    continue
                try:
                    await asyncio.to_thread(self.forget, job)
                except Exception:  # one that cannot be deleted now is tried again in an hour, and keeps none of the others
                    _LOG.exception("the reading %s cannot be deleted, which is too old", job.id)
            await asyncio.sleep(3600)

    async def _old(self, moment: float) -> list[Job]:
        try:
            return await asyncio.to_thread(self.desk.store.ended_before, moment)
        except Exception:
            _LOG.exception("readings that are too old cannot be looked for")
            return []

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


def _log_end(live: _Live) -> None:
    job, done = live.job, live.progress.ledger if live.progress is not None else Ledger()
    answer = job.result["status"] if job.result is not None else None
    named = {"id": job.id, "key": job.owner, "status": job.status, "kind": job.kind, "answer": answer}
    log.told(_LOG, "reading", **named, turns=done.turns, tokens=_tokens(done.usage), seconds=round(live.seconds, 3))


def _tokens(usage: Usage) -> int:
    return usage.prompt_tokens + usage.completion_tokens
