"""Standing questions: a folder of files with questions, whose answers are brought up to date with what is new.

A watch keeps a copy of the text it has read (`Snapshot`), which only grows, and one reading in the journal for each
question, which is extended by what is new. So a run asks the model about what was added, whatever the folder holds, and
equals one reading of all of it in the order in which it came.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from memagent.core import LineOrigin, Span
from memagent.documents import Document, load
from memagent.documents.document import Skipped
from memagent.documents.snapshot import Changes, Snapshot
from memagent.errors import ConfigError, JournalError
from memagent.files import atomic_file, locked
from memagent.grounding.claims import units
from memagent.grounding.verdict import Verdict
from memagent.growth import growing
from memagent.home import data_folder
from memagent.journal import Journal
from memagent.journal.redaction import redact
from memagent.models.open import OpenModel
from memagent.result import Reading
from memagent.session import Progress, Session, Watcher, ledger_of
from memagent.settings import Settings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE = "watch.json"
# What readings are handed to before they are run: it gives their watcher.
Shown: TypeAlias = Callable[[Sequence[Progress]], AbstractContextManager[Watcher | None]]
_BUSY = "the watch {name!r} is running already: wait for it to end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A question and what is known: its reading, and the last answer with its verdict (None: it was not verified).

    `doubtful` are lines of the memory that came from files which were edited or deleted since.
    """

    question: str
    reading: str | None = None
    answer: str | None = None
    verdict: Verdict | None = None
    doubtful: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Standing:
        """The question that is part of `Watch.to_json`."""
        verdict = Verdict.from_json(values["verdict"]) if values["verdict"] else None
        return cls(**{**values, "verdict": verdict, "doubtful": tuple(values["doubtful"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A watch as it is on disk. `parts`: how many parts of the copy its readings are about;
    `pending`: not all of them are there yet, because a run ended before it was done. `gone` and `edited` are files
    whose text, as it was read, is no longer there."""

    name: str
    paths: tuple[str, ...]
    encoding: str | None
    settings: Mapping[str, Any]
    questions: tuple[Standing, ...]
    parts: int = 0
    pending: bool = False
    runs: int = 0
    edited: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Watch:
        """The watch that `to_json` wrote."""
        plain = {name: tuple(values[name]) for name in ("paths", "edited", "gone")}
        return cls(**{**values, **plain, "questions": tuple(map(Standing.from_json, values["questions"]))})


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What a run came to: what became of the files, and each question before and after, with its reading (None: nothing was
    new, so nothing was read). `broken` are files that cannot be read, and are tried again in the next run."""

    watch: Watch
    changes: Changes
    before: tuple[Standing, ...]
    readings: tuple[Reading, ...] = ()
    broken: tuple[Skipped, ...] = ()

    @property
    def changed(self) -> list[tuple[Standing, Standing]]:
        """Questions whose answers are not what they were, before and after."""
        return [(old, new) for old, new in zip(self.before, self.watch.questions, strict=True) if new.answer != old.answer]


def folder_of(name: str) -> Path:
    """Where a watch is kept. Raises ConfigError for a name that cannot be one."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"a watch cannot be named {name!r}: use up to 64 letters, digits, '.', '_' and '-'")
    return data_folder() / "watches" / name


def add(
    name: str, paths: Sequence[str], questions: Sequence[str], settings: Settings, encoding: str | None = None
) -> Watch:
    """Writes a new watch. Nothing is read yet. Raises ConfigError if there is one of that name, or no question, or for a
    reader that cannot go on in a document that has grown."""
    folder = folder_of(name)
    if (folder / _FILE).exists():
        raise ConfigError(f"there is a watch {name!r} already: remove it first, or choose another name")
    if not questions or len(set(questions)) < len(questions):
        raise ConfigError("a watch needs questions, each of them once")
    if "-" in paths:
        raise ConfigError("a watch cannot read standard input, which is there only once: name files or folders")
    if settings.reader not in growing():
        raise ConfigError(
            f"the reader {settings.reader!r} cannot go on in a document that has grown: a watch needs one of"
            f" {', '.join(growing())}"
        )
    watch = _new(name, paths, questions, settings, encoding)
    save(watch)
    return watch


def same(
    watch: Watch, paths: Sequence[str | Path], questions: Sequence[str], settings: Settings, encoding: str | None = None
) -> bool:
    """Whether `add` with these values would make this watch, as it was before it was run."""
    made = _new(watch.name, paths, questions, settings, encoding)
    asked = [one.question for one in watch.questions]
    known = (watch.paths, asked, watch.settings, watch.encoding)
    return known == (made.paths, list(questions), made.settings, made.encoding)


def _new(
    name: str, paths: Sequence[str | Path], questions: Sequence[str], settings: Settings, encoding: str | None
) -> Watch:
    return Watch(
        name=name,
        paths=tuple(str(Path(path).absolute()) for path in paths),
        encoding=encoding,
        settings=redact(settings.to_json(), "settings"),
        questions=tuple(Standing(question=question) for question in questions),
    )


def show(name: str) -> Watch:
    """A watch. Raises ConfigError if there is none of that name, listing those there are, or if its file is damaged."""
    path = folder_of(name) / _FILE
    if not path.is_file():
        known = ", ".join(names()) or "none"
        raise ConfigError(f"there is no watch {name!r}; there are: {known}")
    try:
        return Watch.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged ({error}): remove the watch {name!r} and add it again") from error


def names() -> list[str]:
    """The names of all watches."""
    return sorted(path.parent.name for path in (data_folder() / "watches").glob(f"*/{_FILE}"))


def remove(name: str) -> None:
    """Deletes a watch and its copy of the text; its readings stay in the journal."""
    show(name)
    with locked(folder_of(name), _BUSY.format(name=name)):
        shutil.rmtree(folder_of(name))


def save(watch: Watch) -> None:
    """Writes a watch, whole or not at all."""
    with atomic_file(folder_of(watch.name) / _FILE) as file:
        json.dump(watch.to_json(), file, indent=1)  # names may have bytes that are not UTF-8


def run(
    name: str,
    opened: OpenModel,
    journal: Journal,
    *,
    rebuild: bool = False,
    verify: bool = True,
    shown: Shown = lambda _: nullcontext(),
) -> Update:
    """Brings the answers of a watch up to date. `rebuild`: all is read afresh, and what was edited or deleted is forgotten.

    A run that was interrupted goes on where it was. A reading that failed has its `error` set; its question keeps its last
    answer and is tried again in the next run. So is a file in a folder that cannot be read. `shown` is given the readings,
    and gives what watches them. Raises ConfigError if another process is at the watch, DocumentError if there is nothing
    to read, or JournalError if the model is not the one that it was added with.
    """
    show(name)
    with locked(folder_of(name), _BUSY.format(name=name)):
        watch, folder = show(name), folder_of(name) / "text"
        with load(watch.paths, encoding=watch.encoding, skip_broken=True) as document:
            copy = Snapshot(folder) if rebuild else Snapshot.open(folder)
            runner = _Runner(watch, copy, opened, journal, verify, shown)
            if rebuild:
                runner.forget()
                shutil.rmtree(folder, ignore_errors=True)
            changes = copy.update(document)
            broken = tuple(one for one in document.skipped if one.broken)
        gone = tuple(name for name in changes.deleted if not any(Path(name).is_relative_to(one.path) for one in broken))
        changes = replace(changes, deleted=gone)
        readings = runner.read_on(changes)
        return Update(watch=runner.watch, changes=changes, before=watch.questions, readings=readings, broken=broken)


class _Runner:
    """One run of a watch, with the watch as it stands on disk."""

    def __init__(
        self,
        watch: Watch,
        copy: Snapshot,
        opened: OpenModel,
        journal: Journal,
        verify: bool,
        shown: Shown,
    ) -> None:
        self.watch, self.copy, self.opened, self.journal = watch, copy, opened, journal
        self.verify, self.shown = verify, shown
        self.settings = Settings.from_json(watch.settings).reopened(opened)

    def forget(self) -> None:
        """The watch as it was when it was added, apart from the answers that there were."""
        fresh = tuple(replace(one, reading=None, doubtful=()) for one in self.watch.questions)
        self._save(replace(self.watch, questions=fresh, parts=0, pending=False, edited=(), gone=()))

    def read_on(self, changes: Changes) -> tuple[Reading, ...]:
        """Reads what was added, and notes what was edited or deleted."""
        self.watch = replace(self.watch, edited=changes.edited, gone=changes.deleted, runs=self.watch.runs + 1)
        readings: tuple[Reading, ...] = ()
        grown, lost = len(self.copy.parts) > self.watch.parts, any(not self._there(one) for one in self.watch.questions)
        if grown or lost or self.watch.pending:
            readings = self._read()
        self._save(replace(self.watch, questions=tuple(self._marked(one) for one in self.watch.questions)))
        return readings

    def _read(self) -> tuple[Reading, ...]:
        """Begins the reading of each question, or goes on with it where it stopped, in all of the text."""
        self._save(replace(self.watch, parts=len(self.copy.parts), pending=True))
        with self.copy.document() as document:
            session = Session(document, self.opened, self.settings, self.journal, verified=self.verify)
            progresses, standing = list[Progress](), list[Standing]()
            for one in self.watch.questions:
                if one.reading is not None and self._there(one):
                    progress = session.extend(one.reading)
                else:
                    [progress] = session.start([one.question])
                progresses.append(progress)
                standing.append(replace(one, reading=progress.id))
                self._save(replace(self.watch, questions=(*standing, *self.watch.questions[len(standing) :])))
            with self.shown(progresses) as watcher:
                results = session.run(progresses, watcher)
            failed = any(result.error is not None for result in results)
            settings = redact(self.settings.to_json(), "settings")  # with where the model is served now
            answered = tuple(map(_answered, standing, results))
            self._save(replace(self.watch, questions=answered, pending=failed, settings=settings))
            return tuple(results)

    def _there(self, one: Standing) -> bool:
        """Whether a question has a reading, and the journal still has that."""
        if one.reading is None:
            return False
        try:
            return self.journal.show(one.reading) is not None
        except JournalError:
            return False  # deleted: it is read afresh

    def _marked(self, one: Standing) -> Standing:
        """The question with the memory lines that came from files whose text is no longer there."""
        lost = {*self.watch.edited, *self.watch.gone}
        if not lost or one.reading is None or not self._there(one):
            return replace(one, doubtful=())
        with self.copy.document(self.watch.parts) as document:
            parts = [(part.name in lost, file.span) for part, file in zip(self.copy.parts, document.files, strict=False)]
            origins = ledger_of(self.journal, one.reading).origins
            return replace(one, doubtful=tuple(origin.line for origin in origins if _from_lost(origin, document, parts)))

    def _save(self, watch: Watch) -> None:
        save(watch)
        self.watch = watch


def _from_lost(origin: LineOrigin, document: Document, parts: Sequence[tuple[bool, Span]]) -> bool:
    """Whether a line came from a part that is lost: of several that it was shown, the one with most of its words counts."""
    words, shared = units(origin.line), {True: 0, False: 0}
    for lost, part in parts:
        for span in origin.spans:
            start, end = max(span.start, part.start), min(span.end, part.end)
            if start < end:
                shared[lost] = max(shared[lost], len(words & units(document.read(start, end))))
    return shared[True] > shared[False]


def _answered(one: Standing, result: Reading) -> Standing:
    """The question with a new answer; with the one it had if the reading failed."""
    return one if result.error is not None else replace(one, answer=result.answer, verdict=result.verdict)
