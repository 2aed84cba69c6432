"""`read` and `aread`: from a document and a question to an answer, in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from memagent.core import Profile, Rules
from memagent.documents import Document, load
from memagent.journal import Journal
from memagent.models.open import OpenModel, open_model
from memagent.result import Reading
from memagent.session import Session, Watcher
from memagent.settings import make_settings

Source = str | Path | Sequence[str | Path] | Document


class ReadingOptions(TypedDict, total=False):
    """Options of a reading; what is left out follows from the model. Tokens are those of the model's tokenizer."""

    profile: str | Path | Profile | None
    question_tokens: int | None
    chunk_tokens: int | None
    memory_tokens: int | None
    answer_tokens: int | None
    reasoning_tokens: int | None
    temperature: float
    top_p: float
    seed: int | None
    rules: Rules
    direct: bool


def read(
    document: Source,
    question: str,
    *,
    model: str | OpenModel = "embedded",
    base_url: str | None = None,
    journal: Journal | None = None,
    watcher: Watcher | None = None,
    **options: Unpack[ReadingOptions],
) -> Reading:
    """Reads a document chunk by chunk and answers a question from the memory.

    document  a path, glob or folder, several of them, or a `Document` (`memagent.from_text` makes one from a string)
    model     "embedded", a folder with weights, the name of a model served at `base_url`, or what `open_model` returned
    journal   an open journal makes the reading durable; without one nothing is written
    watcher   is called after every step with the readings that moved

    Raises DocumentError, ConfigError, or the ModelError that ended the reading.
    """
    [result] = read_many(document, [question], model=model, base_url=base_url, journal=journal, watcher=watcher, **options)
    return _answered(result)


def read_many(
    document: Source,
    questions: Sequence[str],
    *,
    model: str | OpenModel = "embedded",
    base_url: str | None = None,
    journal: Journal | None = None,
    watcher: Watcher | None = None,
    **options: Unpack[ReadingOptions],
) -> list[Reading]:
    """One reading per question, run together: batched in process, concurrent on a server.

    A reading that failed has its `error` set; the others are not affected.
    """
    with _Opened(document, model, base_url, journal, options) as session:
        return session.run(session.start(questions), watcher)


async def aread(
    document: Source,
    question: str,
    *,
    model: str | OpenModel = "embedded",
    base_url: str | None = None,
    journal: Journal | None = None,
    watcher: Watcher | None = None,
    **options: Unpack[ReadingOptions],
) -> Reading:
    """As `read`, without blocking the event loop."""
    opened = _Opened(document, model, base_url, journal, options)
    entering = asyncio.ensure_future(asyncio.to_thread(opened.__enter__))
    try:
        session = await asyncio.shield(entering)
        [result] = await session.arun(await asyncio.to_thread(session.start, [question]), watcher)
    finally:
        await asyncio.wait([entering])  # what is being opened when this is cancelled is closed as well
        opened.__exit__()
    return _answered(result)


def _answered(result: Reading) -> Reading:
    """The result, or the error that ended the reading, with the way to go on."""
    if result.cause is not None:
        if result.id is not None:
            result.cause.add_note(f"resume with: memagent resume {result.id}")
        raise result.cause
    return result


class _Opened:
    """A session over a document and a model; closes what it opened itself."""

    def __init__(
        self,
        document: Source,
        model: str | OpenModel,
        base_url: str | None,
        journal: Journal | None,
        options: ReadingOptions,
    ) -> None:
        self._document, self._model, self._base_url = document, model, base_url
        self._journal, self._options = journal, options

        self.document: Document | None = None
        self.opened: OpenModel | None = None

    def __enter__(self) -> Session:
        given, model = self._document, self._model
        paths = [given] if isinstance(given, str | Path) else given
        self.document = paths if isinstance(paths, Document) else load(paths)
        self.opened = open_model(model, base_url=self._base_url) if isinstance(model, str) else model
        name = model if isinstance(model, str) else model.engine.identity
        settings = make_settings(self.opened, model=name, base_url=self._base_url, **self._options)
        absolute = [] if isinstance(paths, Document) else [str(Path(path).absolute()) for path in paths]
        return Session(self.document, self.opened, settings, self._journal, paths=absolute)

    def __exit__(self, *_: object) -> None:
        if self.document is not None and not isinstance(self._document, Document):
            self.document.close()
        if self.opened is not None and isinstance(self._model, str):
            self.opened.engine.close()
