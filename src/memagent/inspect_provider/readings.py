"""Readings of many documents with one opened model, side by side in an event loop; nothing here needs inspect_ai."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from memagent.batch.shared import SharedEngine
from memagent.documents import Document
from memagent.errors import ConfigError, JournalError
from memagent.journal import Journal
from memagent.models.open import OpenModel, open_model
from memagent.result import Reading
from memagent.session import Progress, Session
from memagent.settings import ReadingOptions, Settings, make_settings
from memagent.threads import cancellable

_OPENING = ("window", "tokenizer", "device", "concurrency", "timeout", "usage")
_READING = (
    "reader",
    "reader_options",
    "profile",
    "question_tokens",
    "chunk_tokens",
    "memory_tokens",
    "answer_tokens",
    "reasoning_tokens",
    "rules",
)
_OWN = ("verify", "journal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What can be said of a model and of how it reads: options of `open_model`, of a reading, and our own.

    `verify`: answers are checked against the document. `journal`: a file that readings are written to turn by turn.
    """

    opening: Mapping[str, Any]
    reading: ReadingOptions
    verify: bool = True
    journal: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Arguments:
        """Raises ConfigError for an argument that there is not."""
        known = (*_OPENING, *_READING, *_OWN)
        if unknown := sorted(set(given) - set(known)):
            raise ConfigError(f"there is no model argument {unknown[0]!r}: choose from {', '.join(known)}")
        reading: ReadingOptions = {name: given[name] for name in _READING if name in given}  # type: ignore[assignment]
        own = {name: given[name] for name in _OWN if name in given}
        return cls(opening={name: given[name] for name in _OPENING if name in given}, reading=reading, **own)


class Readings:
    """Opens a model, and reads with it. Raises ModelError, ConfigError or JournalError that say what is wrong.

    A reading that is in the journal without an answer goes on at the turn it had reached, if the same document is read for
    the same question with the same settings.
    """

    def __init__(self, model: str, base_url: str | None, api_key: str | None, arguments: Arguments) -> None:
        self._journal = Journal.open(Path(arguments.journal).expanduser()) if arguments.journal else None
        self._opened = open_model(model, base_url=base_url, api_key=api_key, **arguments.opening)
        self._model, self._base_url, self._arguments = model, base_url, arguments
        self._settings({})  # what cannot work is said at once
        self._sharing: tuple[asyncio.AbstractEventLoop, SharedEngine] | None = None
        self._lock = Lock()
        self._unfinished = defaultdict[tuple[object, str], list[str]](list)
        for record in self._journal.list(limit=None) if self._journal else ():
            if record.status != "answered":
                self._unfinished[record.document["digest"], record.question].append(record.id)

    async def read(self, document: Document, question: str, chosen: ReadingOptions) -> Reading:
        """Reads a document, which is closed afterwards. Raises ConfigError, or the ModelError that ended the reading."""
        opened, counted = self._shared()
        with document, counted:
            session, progress = await cancellable(lambda: self._begun(document, question, opened, chosen))
            with ExitStack() as unfinished:  # also if the sample is cancelled
                if progress.id is not None:
                    unfinished.callback(self._unfinished[document.digest, question].append, progress.id)
                [result] = await session.arun([progress])
                if result.cause is not None:
                    raise result.cause
                unfinished.pop_all()
        return result

    def close(self) -> None:
        """Releases the model and the journal."""
        self._opened.engine.close()
        if self._journal is not None:
            self._journal.close()

    def _settings(self, chosen: ReadingOptions) -> Settings:
        options: ReadingOptions = {**self._arguments.reading, **chosen}
        return make_settings(self._opened, model=self._model, base_url=self._base_url, **options)

    def _shared(self) -> tuple[OpenModel, Any]:
        """The model as the readings of this event loop share it: in process, their turns are generated together."""
        engine, loop = self._opened.engine, asyncio.get_running_loop()
        if not engine.lockstep:
            return self._opened, nullcontext()
        if self._sharing is None or self._sharing[0] is not loop:
            self._sharing = loop, SharedEngine(engine, engine.concurrency)
        shared = self._sharing[1]
        return replace(self._opened, engine=shared), shared.reading()

    def _begun(
        self, document: Document, question: str, opened: OpenModel, chosen: ReadingOptions
    ) -> tuple[Session, Progress]:
        settings = self._settings(chosen)
        session = Session(document, opened, settings, self._journal, verified=self._arguments.verify)
        with self._lock:
            known = self._unfinished.get((document.digest, question), [])
            for id in known:
                try:
                    progress = session.resume(id)
                except JournalError:  # of other settings, or another process is at it
                    continue
                known.remove(id)
                return session, progress
        [progress] = session.start([question])
        return session, progress
