"""What is done with one job: its document is loaded, its questions are answered together, and it is closed again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from memagent.batch.jobs import Job
from memagent.batch.records import answered, failed
from memagent.batch.shared import SharedEngine, under_way
from memagent.documents import Document, from_text, load
from memagent.errors import ConfigError, DocumentError, JournalError, JournalFileError, MemagentError, ModelError
from memagent.journal import Journal
from memagent.models.open import OpenModel
from memagent.session import Progress, Session
from memagent.settings import Settings
from memagent.threads import cancellable, together

_LABEL = "job"
# Is given each record as it ends, with the id of its reading in the journal; in any thread.
Take: TypeAlias = Callable[[dict[str, Any], str | None], None]


class JobReader:
    """Reads jobs with one opened model, up to `at_once` of them, in one event loop.

    `settings` are those of each form of job. Readings under way are in the journal; one that was interrupted there goes on
    at the turn it had reached, unless its document has changed.
    """

    def __init__(
        self, opened: OpenModel, settings: Sequence[Settings], journal: Journal, *, at_once: int, verified: bool
    ) -> None:
        self._opened = replace(opened, engine=SharedEngine(opened.engine, at_once)) if opened.engine.lockstep else opened
        self._settings = settings
        self._journal = journal
        self._verified = verified
        self._known: dict[tuple[int, str], str] = {}
        self.look()

    def look(self) -> None:
        """Looks in the journal for readings to go on with."""
        for record in self._journal.list(limit=None):
            if record.status != "running":
                self._known[int(str(record.document.get(_LABEL))), record.question] = record.id

    def known(self) -> dict[tuple[int, str], str]:
        """The readings to go on with, by the number of their job and their question."""
        return dict(self._known)

    async def read(self, job: Job, questions: Sequence[str], take: Take) -> None:
        """Reads a job for some of its questions. A failure becomes a record; JournalError and what `take` raises end it."""
        try:
            document = await asyncio.to_thread(loaded, job)
        except DocumentError as error:
            for question in questions:
                await asyncio.to_thread(take, failed(job, question, error), None)
            return
        with document:
            session = Session(
                document,
                self._opened,
                self._settings[job.form],
                self._journal,
                paths=job.paths,
                verified=self._verified,
                label={_LABEL: job.number},
            )
            begun = await cancellable(lambda: [self._begin(session, job, question) for question in questions])
            async with together() as group:
                for question, progress in zip(questions, begun, strict=True):
                    group.create_task(self._end(session, job, question, progress, take))

    def _begin(self, session: Session, job: Job, question: str) -> Progress | MemagentError:
        """Starts a reading, or goes on with it."""
        try:
            known = self._known.pop((job.number, question), None)
            if known is not None:
                try:
                    return session.resume(known)
                except JournalFileError:  # it cannot be read or written now: what it has is kept
                    raise
                except JournalError:  # the document has changed, or another process is at it
                    with suppress(JournalError):
                        self._journal.delete(known)
            [progress] = session.start([question])
        except (ConfigError, ModelError) as error:
            return error
        return progress

    async def _end(self, session: Session, job: Job, question: str, progress: Progress | MemagentError, take: Take) -> None:
        if isinstance(progress, MemagentError):
            await asyncio.to_thread(take, failed(job, question, progress), None)
            return
        with under_way(self._opened.engine):
            [result] = await session.arun([progress])
        await asyncio.to_thread(take, answered(job, result), result.id)


def loaded(job: Job) -> Document:
    """The document of a job. Raises DocumentError, also for what a parser did not expect, so that other jobs go on."""
    try:
        return from_text(job.text) if job.text is not None else load(list(job.paths))
    except DocumentError:
        raise
    except Exception as error:
        name = "; ".join(job.given) or job.id
        raise DocumentError(f"{name}: cannot be read ({type(error).__name__}: {error})") from error
