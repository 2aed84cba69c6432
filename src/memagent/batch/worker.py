"""A process on a Ray cluster that reads jobs of a batch. Nothing here needs Ray."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memagent.batch.jobs import Job
from memagent.batch.reading import JobReader
from memagent.errors import MemagentError
from memagent.journal import Journal
from memagent.models.open import open_model
from memagent.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a worker has to know besides its jobs: the model, with the options to open it, and the settings of each form.

    `version` is memagent's at the driver, and `batch` the name of the batch.
    """

    batch: str
    version: str
    model: str
    options: Mapping[str, Any]
    settings: Sequence[Mapping[str, Any]]
    verified: bool
    api_key: str | None = field(default=None, repr=False)


class Worker:
    """Reads up to `at_once` jobs. The workers of a machine share a journal there, so that one that takes the place of
    another goes on with its readings."""

    def __init__(self, setup: Setup, at_once: int) -> None:
        self._setup = setup
        self._at_once = at_once
        self._journal: Journal | None = None
        self._reader: JobReader | None = None
        self._forgetting = asyncio.Lock()

    async def open(self) -> str:
        """Opens the model. Returns why that failed, or ""."""
        try:
            await asyncio.to_thread(self._open)
        except MemagentError as error:
            return f"{error} (on {socket.gethostname()})"
        return ""

    def _open(self) -> None:
        from memagent import __version__

        setup = self._setup
        if __version__ != setup.version:
            raise MemagentError(f"memagent {__version__} is installed, the command is that of {setup.version}")
        opened = open_model(setup.model, api_key=setup.api_key, concurrency=self._at_once, **setup.options)
        settings = [Settings.from_json(one) for one in setup.settings]
        if settings[0].identity != opened.engine.identity:
            raise MemagentError(f"the model is {opened.engine.identity}, at the command it is {settings[0].identity}")
        self._journal = Journal.open(journal_of(setup.batch))
        self._reader = JobReader(opened, settings, self._journal, at_once=self._at_once, verified=setup.verified)

    async def read(self, job: Job, questions: Sequence[str], again: bool) -> list[tuple[dict[str, Any], str | None]]:
        """Reads a job. Returns its records, with the ids of their readings. `again`: another worker may have begun it."""
        assert self._reader is not None
        made: list[tuple[dict[str, Any], str | None]] = []
        if again:
            await asyncio.to_thread(self._reader.look)
        await self._reader.read(job, questions, lambda record, reading: made.append((record, reading)))
        return made

    async def forget(self, readings: Sequence[str]) -> None:
        """Removes readings that are recorded."""
        assert self._journal is not None
        async with self._forgetting:
            for reading in readings:
                await asyncio.to_thread(self._journal.delete, reading)

    async def close(self, delete: bool) -> None:
        """Closes the journal once all is forgotten that was to be, and deletes it if nothing of the batch is left to do."""
        if self._journal is None:
            return
        async with self._forgetting:
            self._journal.close()
        if delete:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self._journal.path}{suffix}").unlink(missing_ok=True)


def journal_of(batch: str) -> Path:
    """The journal of a batch on this machine, in a folder for temporary files that is the user's own.

    Raises MemagentError if that folder is somebody else's.
    """
    folder = Path(tempfile.gettempdir()) / f"memagent-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise MemagentError(f"{folder} belongs to another user: set TMPDIR to a folder of your own")
    return folder / f"{batch}.sqlite3"
