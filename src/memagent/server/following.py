"""What becomes of a job, turn by turn, for those who listen: the same after a lost connection and after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import islice

from memagent.errors import JournalError
from memagent.journal import TurnEntry
from memagent.server.jobs import moved
from memagent.server.state import Service
from memagent.server.values import Job

BEAT = ": still reading\n\n"  # a comment between server-sent events, so that the connection is kept
_SILENCE = 15.0  # seconds without a turn after which listeners are given a job that has not moved
_PAGE = 64  # turns that are read from the journal at a time


async def follow(service: Service, job: Job, first: int) -> AsyncIterator[tuple[Job, Sequence[TurnEntry]]]:
    """The turns of a job from number `first` on, as the journal has them, each with the job as it then was.

    Without turns, a job is over, and this the last of it; or nothing has come for a while. This ends early if the service
    ends, or the job is deleted.
    """
    while not service.jobs.ending:
        signal = service.jobs.signal(job)
        found = await asyncio.to_thread(service.store.job, job.id, job.owner)
        if found is None:
            return
        job = found
        while turns := await asyncio.to_thread(_turns, service, job, first):
            yield job, turns
            first = turns[-1].number + 1
        yield job, ()
        if job.over:
            return
        await moved(signal, _SILENCE)


def line(turn: TurnEntry, planned: int | None = None) -> str:
    """What a turn did, and of how many it is one, if that is known."""
    total = f" of {planned}" if planned is not None else ""
    where = f" of characters {turn.spans[0][0]:,} to {turn.spans[-1][1]:,}" if turn.spans else ""
    return f"turn {turn.number + 1}{total}: {turn.kind}{where}, {turn.outcome}\n"


def _turns(service: Service, job: Job, first: int) -> list[TurnEntry]:
    if job.reading is None:
        return []
    try:
        return list(islice(service.jobs.desk.journal.turns(job.reading, first), _PAGE))
    except JournalError:
        now = service.store.job(job.id, job.owner)
        if now is not None and not now.over:
            raise
        return []  # the reading was deleted: the journal forgets it before the store does
