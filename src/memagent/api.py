"""From a document and a question to an answer in one call: `read`, `read_many`, `resume`, and the same without blocking.

A `Reading` that is in a journal can be gone on from: `ask` another question of it, `extend` it by what was added.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import fields
from difflib import get_close_matches
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

from memagent.documents import Document, load
from memagent.documents.discovery import paths_of
from memagent.documents.document import Loading
from memagent.errors import ConfigError, JournalError
from memagent.journal import Journal, ReadingRecord
from memagent.models.open import OpenModel, open_model
from memagent.result import Reading as Result
from memagent.session import Progress, Session, Watcher, left_by
from memagent.settings import ReadingOptions, Settings, from_memory, make_settings
from memagent.threads import cancellable, in_thread

if TYPE_CHECKING:
    from memagent.structured import SchemaSource

Source = str | Path | Sequence[str | Path] | Document
_SWITCHES = ("skip_broken", "together", "verify")


class ReadOptions(ReadingOptions, total=False):
    """What the functions of this module take, besides the options of a reading.

    model     "embedded" (the default), a folder with weights, the name of a model served at `base_url`, or what
              `open_model` returned
    base_url  base URL of an OpenAI-compatible server
    encoding  of text files, if detection is wrong
    skip_broken  leave out the files of a folder that cannot be read; they are in `document["skipped"]` of the result
    journal   an open journal makes the reading durable; without one nothing is written
    verify    check answers against the document (the default): a few more calls of a model that can quote
    together  for `read_many`: one reading with one memory for all questions, instead of one reading for each
    watcher   is called after every step with the readings that moved
    """

    model: str | Path | OpenModel
    base_url: str | None
    encoding: str | None
    skip_broken: bool
    journal: Journal | None
    together: bool
    verify: bool
    watcher: Watcher | None


class ResumeOptions(TypedDict, total=False):
    """What the functions that resume a reading take.

    journal   the journal that has the reading (not given: the default one)
    verify    check the answer against the document (the default), if that was not done
    model     an opened model, and `base_url` a server's base URL, where it is not the one the reading was begun with
    watcher   is called after every step with the readings that moved
    """

    journal: Journal | None
    model: OpenModel | None
    base_url: str | None
    verify: bool
    watcher: Watcher | None


class FollowUpOptions(ResumeOptions, total=False):
    """What `follow_up` takes besides: `schema`, as in `ReadingOptions`."""

    schema: SchemaSource | None


class Reading(Result):
    """The result of one document × one question, with the ways to go on from it.

    It knows how it was read: the journal, and the opened model if one was handed in. A copy or a pickle does not.
    """

    __slots__ = ("_again",)

    @classmethod
    def of(cls, result: Result, again: ResumeOptions) -> Reading:
        """A result with the options by which it can be gone on from."""
        made = cls(**{item.name: getattr(result, item.name) for item in fields(Result)})
        object.__setattr__(made, "_again", again)
        return made

    @property
    def again(self) -> ResumeOptions:
        """Options of `resume` with which this was read."""
        found: ResumeOptions = getattr(self, "_again", ResumeOptions())
        return found

    def ask(self, question: str, document: Source | None = None, **options: Unpack[FollowUpOptions]) -> Reading:
        """Answers another question from the memory of this reading; see `follow_up`."""
        return follow_up(self, question, document, **(FollowUpOptions(schema=None, **self.again) | options))

    async def aask(self, question: str, document: Source | None = None, **options: Unpack[FollowUpOptions]) -> Reading:
        """As `ask`, without blocking the event loop."""
        return await afollow_up(self, question, document, **(FollowUpOptions(schema=None, **self.again) | options))

    def extend(self, more: Source = (), **options: Unpack[ResumeOptions]) -> Reading:
        """Reads on in the document, which has grown; see the function `extend`."""
        return extend(self, more, **(self.again | options))

    async def aextend(self, more: Source = (), **options: Unpack[ResumeOptions]) -> Reading:
        """As `extend`, without blocking the event loop."""
        return await aextend(self, more, **(self.again | options))


def read(document: Source, question: str, **options: Unpack[ReadOptions]) -> Reading:
    """Reads a document chunk by chunk and answers a question from the memory.

    `document` is a path, glob or folder, several of them, or a `Document` (`memagent.from_text` makes one from a string).
    For `options` see `ReadOptions` and `ReadingOptions`. Raises DocumentError, ConfigError, or the ModelError that ended
    the reading. Its attribute `reading` is the id of the reading in the journal, None if none was entered; what the watcher
    raises has it, too.
    """
    [result] = read_many(document, [_one(question)], **options)
    return _answered(result)


def read_many(document: Source, questions: str | Sequence[str], **options: Unpack[ReadOptions]) -> list[Reading]:
    """One reading per question, run together: batched in process, concurrent on a server. A string is one question.

    A reading that failed has its `error` set; the others are not affected.
    """
    with _session(document, options) as session:
        readings = _started(session, questions, options)
        return _made(_run(session, readings, options), options)


async def aread(document: Source, question: str, **options: Unpack[ReadOptions]) -> Reading:
    """As `read`, without blocking the event loop."""
    [result] = await aread_many(document, [_one(question)], **options)
    return _answered(result)


async def aread_many(document: Source, questions: str | Sequence[str], **options: Unpack[ReadOptions]) -> list[Reading]:
    """As `read_many`, without blocking the event loop."""
    async with without_blocking(_session(document, options)) as session:
        readings = await cancellable(lambda: _started(session, questions, options))
        return _made(await _arun(session, readings, options), options)


def _one(question: str) -> str:
    """Raises ConfigError for questions where one is read for."""
    if not isinstance(question, str):
        raise ConfigError(f"the question is {question!r}; it must be a text: use read_many for several")
    return question


def resume(id: str, document: Source | None = None, **options: Unpack[ResumeOptions]) -> Reading:
    """Goes on with a reading that was interrupted or failed. No finished turn is asked again.

    `id` is the reading's, or its beginning. `document` says where the document is now, if it has moved or was not read
    from a file. For `options` see `ResumeOptions`. A reading that is answered is returned as it ended. Raises JournalError
    if document or settings are not those it was begun with, or the ModelError that ended it.
    """
    with _resumed(id, document, options) as (session, record):
        results = _run(session, [session.resume(record.id)], options)
    return _single(results, options)


async def aresume(id: str, document: Source | None = None, **options: Unpack[ResumeOptions]) -> Reading:
    """As `resume`, without blocking the event loop."""
    async with without_blocking(_resumed(id, document, options)) as (session, record):
        progress = await cancellable(lambda: session.resume(record.id))
        results = await _arun(session, [progress], options)
    return _single(results, options)


def resume_many(id: str, document: Source | None = None, **options: Unpack[ResumeOptions]) -> list[Reading]:
    """As `resume`, for a reading of several questions together: a result for each of them, its `error` set if it failed."""
    with _resumed(id, document, options) as (session, record):
        return _made(_run(session, [session.resume(record.id)], options), options)


def extend(reading: str | Reading, more: Source = (), **options: Unpack[ResumeOptions]) -> Reading:
    """Reads on in a document that has grown: the files of a reading, to which text was added at the end, and `more` paths.

    Only what was added is read, from the memory before it; the result is that of one reading of the grown document, under
    the same id. `more` may be a `Document` instead: the whole grown document. Raises JournalError if text before the end
    has changed, or for a reader that cannot go on in a document that has grown; or the ModelError that ended it.
    """
    with _extended(reading, more, options) as (session, record):
        results = _run(session, [session.extend(record.id)], options)
    return _single(results, options)


async def aextend(reading: str | Reading, more: Source = (), **options: Unpack[ResumeOptions]) -> Reading:
    """As `extend`, without blocking the event loop."""
    async with without_blocking(_extended(reading, more, options)) as (session, record):
        progress = await cancellable(lambda: session.extend(record.id))
        results = await _arun(session, [progress], options)
    return _single(results, options)


def follow_up(
    reading: str | Reading, question: str, document: Source | None = None, **options: Unpack[FollowUpOptions]
) -> Reading:
    """Answers another question from the memory that a reading ended with: one call, and nothing is read again.

    `reading` is one that is in the journal, or its id or the beginning of it. A memory was written for its own question and
    may not hold what another one asks for; the answer then says so (`status` is "not_found"). `document` as for `resume`.
    With `schema`, the answer is JSON that follows it.
    Raises JournalError if the reading has not ended or its document has changed, or the ModelError that ended the question.
    """
    with _followed(reading, document, options) as session:
        results = _run(session, session.start([question]), options)
    return _single(results, options)


async def afollow_up(
    reading: str | Reading, question: str, document: Source | None = None, **options: Unpack[FollowUpOptions]
) -> Reading:
    """As `follow_up`, without blocking the event loop."""
    async with without_blocking(_followed(reading, document, options)) as session:
        readings = await cancellable(lambda: session.start([question]))
        results = await _arun(session, readings, options)
    return _single(results, options)


def document_paths(record: ReadingRecord) -> list[str]:
    """Where a reading's document was read from. Raises JournalError if it was not read from files."""
    found = record.document.get("paths")
    paths = [str(path) for path in found] if isinstance(found, Sequence) else []
    if not paths or "-" in paths:
        raise JournalError(
            f"reading {record.id} read its document from standard input or memory: give its path after the id"
            " (`document` in Python)"
        )
    return paths


def document_loading(record: ReadingRecord) -> Loading:
    """How a reading's document was loaded."""
    encoding = record.document.get("encoding")
    return {"encoding": str(encoding) if encoding else None, "skip_broken": record.document.get("skip_broken") is True}


def _started(session: Session, questions: str | Sequence[str], options: ReadOptions) -> list[Progress]:
    asked = [questions] if isinstance(questions, str) else questions
    return session.start(session.together(asked) if options.get("together") else asked)


def _run(session: Session, readings: Sequence[Progress], options: ReadOptions | ResumeOptions) -> list[Result]:
    with _told(readings):
        return session.run(readings, options.get("watcher"))


async def _arun(session: Session, readings: Sequence[Progress], options: ReadOptions | ResumeOptions) -> list[Result]:
    with _told(readings):
        return await session.arun(readings, options.get("watcher"))


@contextmanager
def _told(readings: Sequence[Progress]) -> Iterator[None]:
    """What stops a reading that is alone, be it its watcher's or an interruption, is told which one it was."""
    try:
        yield
    except BaseException as error:
        if len(readings) == 1:
            _tell(error, readings[0].id)
        raise


def _tell(error: BaseException, id: str | None) -> None:
    """Gives an error the id of the reading that it ended, as `reading`."""
    with suppress(AttributeError):  # an error of another's own may have no place for it
        error.reading = id  # type: ignore[attr-defined]


@contextmanager
def _session(source: Source, options: ReadOptions) -> Iterator[Session]:
    """A session over a document and a model; what is opened here is closed with it."""
    check_options(options, ReadOptions)
    loading: Loading = {"encoding": options.get("encoding"), "skip_broken": options.get("skip_broken", False)}
    verified = options.get("verify", True)
    with (
        _opened(source, loading) as (document, paths),
        opened_engine(options.get("model", "embedded"), options.get("base_url")) as opened,
    ):
        settings, journal = settings_of(opened, options), options.get("journal")
        yield Session(document, opened, settings, journal, paths=paths, verified=verified)


def check_options(options: Mapping[str, object], known: type) -> None:
    """Raises TypeError for an option that the typed dictionary `known` does not have, and for a watcher that would have
    to be awaited; ConfigError for a switch that is neither on nor off."""
    names = sorted(known.__annotations__)
    for name in options:
        if name not in names:
            near = get_close_matches(name, names, 1) or names
            raise TypeError(f"there is no option {name!r}: use {', '.join(near)}")
    for name in _SWITCHES:
        if not isinstance(value := options.get(name, True), bool):
            raise ConfigError(f"{name} is {value!r}; it must be True or False")
    watcher = options.get("watcher")
    if iscoroutinefunction(watcher) or (callable(watcher) and iscoroutinefunction(type(watcher).__call__)):
        raise TypeError("the watcher is an async function, which would never be awaited: give a function made with def")


def settings_of(opened: OpenModel, options: ReadOptions) -> Settings:
    """The settings of a reading with an opened model. Raises ConfigError."""
    chosen: ReadingOptions = {name: value for name, value in options.items() if name in ReadingOptions.__annotations__}  # type: ignore[assignment]
    name = opened.name or opened.engine.identity
    return make_settings(opened, model=name, base_url=opened.base_url, tokenizer=opened.tokenizer, **chosen)


def _resumed(
    id: str, source: Source | None, options: ResumeOptions
) -> AbstractContextManager[tuple[Session, ReadingRecord]]:
    check_options(options, ResumeOptions)
    return _again(id, source, options)


@contextmanager
def _extended(reading: str | Reading, more: Source, options: ResumeOptions) -> Iterator[tuple[Session, ReadingRecord]]:
    check_options(options, ResumeOptions)
    with _again(_id_of(reading), more if isinstance(more, Document) else None, options, more) as (session, record):
        if session.settings.together:
            count = len(session.settings.together)
            raise JournalError(f"reading {record.id} answers {count} questions: extend it with memagent extend {record.id}")
        yield session, record


@contextmanager
def _followed(reading: str | Reading, source: Source | None, options: FollowUpOptions) -> Iterator[Session]:
    """A session that answers from the memory of a reading."""
    check_options(options, FollowUpOptions)
    with _again(_id_of(reading), source, options) as (session, record):
        assert session.journal is not None
        memory = left_by(session.journal, record, session.document)
        session.settings = from_memory(session.settings, record.id, memory, options.get("schema"))
        yield session


def _id_of(reading: str | Reading) -> str:
    """The id of a reading. Raises JournalError if it is in no journal."""
    id = reading if isinstance(reading, str) else reading.id
    if not id:
        raise JournalError("this reading is in no journal: read with journal=… to go on from it later")
    return id


@contextmanager
def _again(
    id: str, source: Source | None, options: ResumeOptions, more: Source = ()
) -> Iterator[tuple[Session, ReadingRecord]]:
    """A session with the settings of a reading in the journal, over its document, or `source` instead, and `more`."""
    with opened_journal(options.get("journal")) as kept:
        record = kept.resumable(id)
        settings = Settings.from_json(record.settings)
        given = [*document_paths(record), *paths_of(more)] if source is None else source
        with (
            _opened(given, document_loading(record)) as (document, paths),
            opened_engine(options.get("model"), options.get("base_url"), settings) as opened,
        ):
            again, verified = settings.reopened(opened), options.get("verify", True)
            yield Session(document, opened, again, kept, paths=paths, verified=verified), record


@contextmanager
def opened_journal(given: Journal | None) -> Iterator[Journal]:
    """The journal that was handed in, which stays open, or the default one."""
    if given is not None:
        yield given
        return
    with Journal.open() as journal:
        yield journal


@contextmanager
def _opened(source: Source, loading: Loading) -> Iterator[tuple[Document, list[str]]]:
    """The document, and the paths by which it can be found again. One that was handed in stays open."""
    if isinstance(source, Document):
        yield source, []
        return
    paths = paths_of(source)
    with load(paths, **loading) as document:
        yield document, [str(Path(path).absolute()) for path in paths]


@contextmanager
def opened_engine(
    model: str | Path | OpenModel | None, base_url: str | None, settings: Settings | None = None
) -> Iterator[OpenModel]:
    """The model, or that of the settings. One that was handed in stays open. Raises ConfigError for one with a base URL."""
    if isinstance(model, OpenModel):
        if base_url is not None:
            raise ConfigError("`base_url` is for a model that is named, and this one is open already: leave it out")
        yield model
        return
    window, tokenizer = (settings.window, settings.tokenizer) if settings else (None, None)
    if settings is not None:
        model, base_url = model or settings.model, base_url or settings.base_url
    opened = open_model("embedded" if model is None else model, base_url=base_url, window=window, tokenizer=tokenizer)
    try:
        yield opened
    finally:
        opened.engine.close()


T = TypeVar("T")


@asynccontextmanager
async def without_blocking(context: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enters and leaves a context manager in a thread. What is being opened when this is cancelled is closed as well."""
    entering = in_thread(context.__enter__)
    try:
        yield await asyncio.shield(entering)
    finally:
        await asyncio.wait([entering])
        if entering.exception() is None:
            await asyncio.to_thread(context.__exit__, None, None, None)


def _made(results: Sequence[Result], options: ReadOptions | ResumeOptions) -> list[Reading]:
    """The results with the ways to go on from them."""
    model = options.get("model")
    again = ResumeOptions(
        journal=options.get("journal"),
        model=model if isinstance(model, OpenModel) else None,
        base_url=options.get("base_url"),
        verify=options.get("verify", True),
    )
    return [Reading.of(one, again) for one in results]


def _single(results: Sequence[Result], options: ResumeOptions) -> Reading:
    """The result of a reading of one question. Raises the error that ended it."""
    if len(results) > 1:
        raise JournalError(f"reading {results[0].id} answers {len(results)} questions: resume it with resume_many")
    return _answered(_made(results, options)[0])


def _answered(result: Reading) -> Reading:
    """The result, or the error that ended the reading, with the way to go on."""
    if result.cause is not None:
        if result.id is not None:
            result.cause.add_note(f"resume with: memagent resume {result.id}")
        _tell(result.cause, result.id)
        raise result.cause
    return result
