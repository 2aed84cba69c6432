"""Opens what a request is about: a session over a document, with the model of this server and the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from memagent.api import document_loading, document_paths
from memagent.core import READERS
from memagent.documents.document import Loading
from memagent.errors import BrokenFileError, ConfigError, DocumentError, JournalError
from memagent.journal import Journal, ReadingRecord
from memagent.mcp_server.roots import Roots
from memagent.mcp_server.texts import Texts
from memagent.models.open import OpenModel
from memagent.session import Progress, Session, left_by
from memagent.settings import AUTO, ReadingOptions, Settings, from_memory, make_settings, same_served

Begin: TypeAlias = Callable[[Session, ReadingRecord], Progress]
Begun: TypeAlias = tuple[Session, Progress]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a client asks: a question of paths, or of a text. `reader` and `schema` as in `ReadingOptions`, if given;
    `skip_broken` as in `load`."""

    question: str
    paths: Sequence[str] = ()
    text: str = ""
    reader: str = ""
    schema: Mapping[str, Any] | None = None
    skip_broken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What requests are answered with. `options` are those of every reading; `roots` are ours, without a client's."""

    opened: OpenModel
    model: str
    base_url: str | None
    tokenizer: str | None
    options: ReadingOptions
    roots: Roots
    texts: Texts

    @contextmanager
    def asked(self, what: Question, roots: Roots) -> Iterator[Begun]:
        """A reading that begins, which the journal has now. Raises DocumentError or ConfigError."""
        if bool(what.paths) == bool(what.text):
            raise DocumentError("give the document as path, paths or text, one of them")
        settings = self._settings(what)
        paths = [roots.located(path) for path in what.paths]
        loading: Loading = {"encoding": None, "skip_broken": what.skip_broken}
        if what.text:
            paths, loading["encoding"] = [self.texts.keep(what.text)], "utf-8"
        with ExitStack() as stack:
            try:
                if not what.text:
                    roots.check(paths, skip_broken=what.skip_broken)
                journal = stack.enter_context(Journal.open())
                document = stack.enter_context(self.texts.opened(paths, loading))
            except BrokenFileError as error:
                raise DocumentError(f"{error}. To read the others without such files, ask with skip_broken") from error
            session = Session(document, self.opened, settings, journal, paths=paths)
            [progress] = session.start([what.question])
            yield session, progress

    @contextmanager
    def again(self, id: str, begin: Begin, roots: Roots) -> Iterator[Begun]:
        """A reading of the journal with what `begin` makes of it. Raises JournalError, ConfigError or DocumentError."""
        with Journal.open() as journal:
            record = journal.resumable(id)
            self.check_seen(record)
            settings = self._same_model(record)
            paths, loading = document_paths(record), document_loading(record)
            if not all(map(self.texts.has, paths)):
                paths = [roots.located(path) for path in paths]
                roots.check(paths, skip_broken=loading["skip_broken"])
            with self.texts.opened(paths, loading) as document:
                session = Session(document, self.opened, settings, journal, paths=paths)
                yield session, begin(session, record)

    def seen(self, record: ReadingRecord) -> bool:
        """Whether a client may see a reading: its document is of files below our folders, or a text that came with a
        request."""
        paths = record.document.get("paths")
        named = [str(path) for path in paths] if isinstance(paths, Sequence) else []
        return bool(named) and all(self.texts.has(path) or self.roots.allows(path) for path in named)

    def check_seen(self, record: ReadingRecord) -> None:
        """Raises JournalError for a reading that a client may not see."""
        if not self.seen(record):
            raise JournalError(
                f"the document of reading {record.id} lies outside the folders that may be read here: start memagent mcp"
                f" with another --root, or use memagent readings show {record.id}"
            )

    def _settings(self, what: Question) -> Settings:
        chosen: dict[str, Any] = {**self.options}
        if what.reader and what.reader != chosen.get("reader"):
            if what.reader not in (AUTO, *READERS):
                raise ConfigError(f"there is no reader {what.reader!r}: use one of {', '.join((AUTO, *READERS))}")
            chosen |= {"reader": what.reader, "reader_options": None}
        if what.schema is not None:
            chosen["schema"] = what.schema
        return make_settings(
            self.opened, model=self.model, base_url=self.base_url, tokenizer=self.tokenizer, **chosen
        )  # fmt: skip

    def _same_model(self, record: ReadingRecord) -> Settings:
        """The settings of a reading. Raises ConfigError if it was read with another model."""
        settings = Settings.from_json(record.settings)
        served = same_served(record.settings, self.opened.name, self.opened.base_url)
        if settings.identity != self.opened.engine.identity and not served:
            raise ConfigError(
                f"reading {record.id} was read with the model {settings.model!r} and this server has {self.model!r}: start"
                " memagent mcp with that model, or use memagent resume or memagent ask --from"
            )
        return settings.reopened(self.opened)


def resumed(session: Session, record: ReadingRecord) -> Progress:
    """A reading, from where it stood."""
    _check_single(session, record)
    return session.resume(record.id)


def extended(session: Session, record: ReadingRecord) -> Progress:
    """A reading of a document that has grown, from where the old one ended."""
    _check_single(session, record)
    return session.extend(record.id)


def followed(question: str, schema: Mapping[str, Any] | None = None) -> Begin:
    """Another question, of the memory that a reading ended with."""

    def begin(session: Session, record: ReadingRecord) -> Progress:
        assert session.journal is not None
        session.settings = from_memory(
            session.settings, record.id, left_by(session.journal, record, session.document), schema
        )
        [progress] = session.start([question])
        return progress

    return begin


def _check_single(session: Session, record: ReadingRecord) -> None:
    if session.settings.together:
        count = len(session.settings.together)
        raise JournalError(f"reading {record.id} answers {count} questions: go on with memagent resume {record.id}")
