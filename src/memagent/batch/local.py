"""Reads the jobs of a batch in this process, a bounded number at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from memagent.batch.folder import BatchFolder
from memagent.batch.jobs import Form, Job, JobFile
from memagent.batch.reading import JobReader
from memagent.doubt import DOUBTFUL, Doubt
from memagent.errors import ConfigError, failure_kind
from memagent.models.open import OpenModel
from memagent.settings import AUTO, Settings, make_plan
from memagent.tasks.lazy_text import LazyText
from memagent.threads import together

_DOUBTFUL = {failure_kind(kind("")): kind for kind in DOUBTFUL}  # by how records name them


@dataclass(slots=True, kw_only=True)
class Tally:
    """The progress of a batch, in questions. `began` of them were done when the command began."""

    total: int
    began: int = 0
    done: int = 0
    failed: int = 0
    tokens: int = 0
    workers: int = 0


Watcher = Callable[[Tally], None]


class Sink:
    """Takes records as they end, from any thread, and writes them. Failures that may mean that the server is down are held
    back; see `Doubt`."""

    def __init__(self, folder: BatchFolder, watcher: Watcher | None, patience: int) -> None:
        self.folder = folder
        self.tally = Tally(total=folder.jobs.questions, began=folder.done, done=folder.done)
        self._watcher = watcher
        self._doubt = Doubt[tuple[dict[str, Any], str | None]](patience)
        self._lock = threading.Lock()

    def take(self, record: dict[str, Any], reading: str | None) -> None:
        """Writes a record, or holds it back."""
        with self._lock:
            doubt = _DOUBTFUL.get(record["error_kind"])
            if doubt is not None:
                self._doubt.hold((record, reading), doubt(record["error"]))
                return
            if record["error"] is None:
                self._settle()
            self._write(record, reading)

    def settle(self) -> None:
        """Writes the records that were held back."""
        with self._lock:
            self._settle()

    def tell(self) -> None:
        """Tells the watcher."""
        if self._watcher is not None:
            self._watcher(self.tally)

    def _settle(self) -> None:
        for record, reading in self._doubt.settled():
            self._write(record, reading)

    def _write(self, record: dict[str, Any], reading: str | None) -> None:
        self.folder.write(record, reading)
        self.tally.done += 1
        self.tally.failed += record["error"] is not None
        self.tally.tokens += record["document"].get("tokens", 0)
        self.tell()


def settings_of(jobs: JobFile, opened: OpenModel, make: Callable[[Form], Settings]) -> list[Settings]:
    """The settings of each form of job. Raises ConfigError for those that cannot work with any document."""
    made = list[Settings]()
    for number, form in enumerate(jobs.forms):
        try:
            made.append(make(form))
            if made[-1].reader != AUTO:
                make_plan(LazyText(["A probe."]), "Why?", made[-1], opened)
        except ConfigError as error:
            field = "reader: " if form.reader else "schema: " if form.schema else ""
            where = f"{jobs.path}, line {jobs.first_line(number)}, {field}" if field else ""
            raise ConfigError(f"{where}{error}") from error
    return made


def run(
    folder: BatchFolder,
    opened: OpenModel,
    settings: Sequence[Settings],
    *,
    at_once: int,
    verified: bool = True,
    watcher: Watcher | None = None,
) -> Tally:
    """Reads what is left of a batch, up to `at_once` documents at a time; as many are open, and no more.

    Raises the ModelError of a model that refused or could not be reached several times in a row.
    """
    sink = Sink(folder, watcher, max(2, at_once))
    reader = JobReader(opened, settings, folder.journal, at_once=at_once, verified=verified)
    sink.tell()
    asyncio.run(_at_once(folder.left(), reader, sink, at_once))
    sink.settle()
    return sink.tally


async def _at_once(work: Iterator[tuple[Job, list[str]]], reader: JobReader, sink: Sink, at_once: int) -> None:
    async def keep_reading() -> None:
        for job, questions in work:
            await reader.read(job, questions, sink.take)

    async with together() as group:
        for _ in range(at_once):
            group.create_task(keep_reading())
