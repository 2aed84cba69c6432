"""One job, read: its document is opened, its reading begun or gone on with, and the result given."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias
from urllib.parse import urlsplit

from memagent.batch.shared import under_way
from memagent.core.readers.kept import KeptReader
from memagent.documents import from_text
from memagent.errors import ConfigError, JournalError, MemagentError, ModelError
from memagent.journal import Journal
from memagent.models.open import OpenModel
from memagent.result import Reading
from memagent.server.documents import Shelf
from memagent.server.hints import for_clients
from memagent.server.store import Store
from memagent.server.values import Job
from memagent.session import Progress, Session, left_by
from memagent.settings import ReadingOptions, Settings, from_memory, make_settings
from memagent.threads import cancellable

_LABEL = "job"  # what the journal calls the job of a reading

# Called, from any thread, whenever a reading has moved.
Moved: TypeAlias = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What jobs are read with. `options` are those of every reading, which a job may override. An engine in process is
    shared by them: turns that wait at the same time are generated together."""

    store: Store
    journal: Journal
    shelf: Shelf
    opened: OpenModel
    model: str
    base_url: str | None
    options: ReadingOptions

    def settings(self, job: Job, *, may_be_away: bool = False) -> Settings:
        """The settings of a job that has not begun. Raises ConfigError, and ModelUnavailableError if the server of the
        model cannot be reached, unless it may be away; then they are good for checks only."""
        usual = {
            name: value for name, value in self.options.items() if name != "reader_options" or "reader" not in job.options
        }
        chosen: ReadingOptions = {**usual, **job.options}  # type: ignore[typeddict-item]
        return make_settings(self.opened, model=self.model, base_url=self.base_url, may_be_away=may_be_away, **chosen)

    def check(self, job: Job) -> None:
        """Raises ConfigError for a job that cannot be read, whatever its document: an empty question, or budgets that its
        settings have no room for."""
        settings = self.settings(job, may_be_away=True)
        if not job.question.strip():
            raise ConfigError("the question is empty")
        if job.options:  # the usual ones were checked at the start, and a server that counts tokens may hang
            self.check_settings(settings, job.question)

    def check_settings(self, settings: Settings, question: str) -> None:
        """Raises ConfigError for settings with which no document can be read."""
        with from_text("any") as document, suppress(ModelError):  # the server that counts tokens may be away
            Session(document, self.opened, settings).plan(question)

    def told(self, error: MemagentError) -> str:
        """What clients are told of an error: its message without hints for the command line, and without the address of the
        model's server, which is not theirs."""
        message = for_clients(str(error))
        for url in filter(None, (self.opened.base_url, self.base_url)):
            place = urlsplit(url)
            port = place.port or (443 if place.scheme == "https" else 80)
            for name in (url, place.netloc, f"{place.hostname}:{port}"):
                message = message.replace(name, "the model's server")
        return re.sub(r" ?\[Connect call failed [^]]*\]", "", message)

    def whole(self, job: Job) -> Job:
        """The job whose document a follow-up is about. Raises ConfigError if it was deleted."""
        while job.parent is not None:
            parent = self.store.job(job.parent, job.owner)
            if parent is None:
                raise ConfigError(f"the reading {job.parent!r} was deleted")
            job = parent
        return job

    def forget_unnoted(self, jobs: Sequence[Job]) -> None:
        """Deletes what these jobs had begun to read when the service was killed, before they had noted it: they begin
        again, and nothing else would ever delete it."""
        begun = {job.id for job in jobs if job.status == "running" and job.reading is None}
        if begun:
            for record in self.journal.list(None, "interrupted"):
                if record.document.get(_LABEL) in begun:
                    self.journal.delete(record.id)

    async def read(self, job: Job, moved: Moved) -> Reading:
        """Reads a job to its end, from where its reading stood. Raises what ended it.

        If this is cancelled, the reading stays as it is in the journal, to be gone on with.
        """
        opening = asyncio.ensure_future(asyncio.to_thread(self._opened, job))
        try:
            session = await asyncio.shield(opening)
            progress = await cancellable(lambda: self._begun(session, job))
            moved(progress)
            with under_way(self.opened.engine):
                [result] = await session.arun([progress], partial(_each, moved))
        finally:
            await asyncio.wait([opening])
            if opening.exception() is None:
                opening.result().document.close()
        if result.cause is not None:
            raise result.cause
        return result

    def _opened(self, job: Job) -> Session:
        whole = self.whole(job)
        document = self.shelf.open(whole.documents, whole.owner)
        paths = self.shelf.paths(whole.documents, whole.owner)
        label = {_LABEL: job.id}
        return Session(document, self.opened, self.settings(whole), self.journal, paths=paths, label=label)

    def _begun(self, session: Session, job: Job) -> Progress:
        """The reading of a job, which the journal and the store have now."""
        if job.reading is not None:
            record = self.journal.resumable(job.reading)
            session.settings = Settings.from_json(record.settings).reopened(self.opened)
            return session.resume(record.id)
        if job.parent is not None:
            parent = self.store.job(job.parent, job.owner)
            if parent is None or parent.reading is None:
                raise JournalError(f"the reading {job.parent!r} has not ended")
            record = self.journal.resumable(parent.reading)
            own = {name: value for name, value in job.options.items() if name == "schema"}
            settings = Settings.from_json(record.settings).reopened(self.opened)
            session.settings = from_memory(settings, record.id, left_by(self.journal, record, session.document), **own)
            assert session.settings.reader == KeptReader.name
        [progress] = session.start([job.question])
        assert progress.id is not None
        with ExitStack() as failed:
            failed.callback(self.journal.delete, progress.id)
            self.store.change(job.id, reading=progress.id)
            failed.pop_all()
        return progress


def _each(moved: Moved, steps: Sequence[Progress]) -> None:
    for step in steps:
        moved(step)
