"""The jobs of a file: one JSON object a line, all of them checked before the first is read.

Only the place of each line is kept; a job is loaded when its turn comes. So memory grows by some hundred bytes a job,
whatever the size of texts in the file.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from memagent import strict_json
from memagent.errors import ConfigError
from memagent.structured import schema_text
from memagent.tables import finding

Filled = Annotated[str, StringConstraints(pattern=r"\S")]
_MOST_SAID = 10  # mistakes of a file that are named
_ALTERNATIVES = (("document", "text"), ("question", "questions"))


class JobLine(BaseModel):
    """A line of the file. `schema` is a JSON Schema, or the path of one."""

    model_config = ConfigDict(extra="forbid", strict=True)

    document: Filled | Annotated[list[Filled], Field(min_length=1)] | None = None
    text: Filled | None = None
    question: Filled | None = None
    questions: Annotated[list[Filled], Field(min_length=1)] | None = None
    id: Filled | None = None
    reader: Filled | None = None
    form: Filled | dict[str, Any] | None = Field(default=None, alias="schema")
    meta: Any = None

    @model_validator(mode="after")
    def _whole(self) -> JobLine:
        for one, other in _ALTERNATIVES:
            if (getattr(self, one) is None) == (getattr(self, other) is None):
                raise ValueError(f"a job has either {one!r} or {other!r}")
        if len(set(self.asked)) < len(self.asked):
            raise ValueError("a question stands twice in 'questions'")
        return self

    @property
    def asked(self) -> tuple[str, ...]:
        """The questions."""
        return tuple(question.strip() for question in ([self.question] if self.question else self.questions or ()))

    @property
    def named(self) -> list[str]:
        """The paths of the document, as they were given."""
        return [self.document] if isinstance(self.document, str) else list(self.document or ())


_FIELDS = [field.alias or name for name, field in JobLine.model_fields.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a job may choose of a reading: the reader (None: the usual one) and the schema of the answer ("": none)."""

    reader: str | None = None
    schema: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One document with its questions. `number` is its place among the jobs, from 0; `form` the number of its form.

    `given` are the paths as they stand in the file, `paths` the same from anywhere; with `text` there are none.
    """

    number: int
    id: str
    questions: tuple[str, ...]
    form: int
    given: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    text: str | None = None
    meta: Any = None


@dataclass(frozen=True, slots=True)
class _Entry:
    id: str
    line: int
    place: int
    size: int
    form: int
    questions: int
    bytes: int


class JobFile:
    """A checked file of jobs. Open it with `JobFile.open`.

    `missing` are documents that do not exist, as (line, path): their jobs will fail, and the others are not affected.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sha256 = ""
        self.forms: list[Form] = []
        self.missing: list[tuple[int, str]] = []
        self._entries: list[_Entry] = []
        self._schemas: dict[str, str] = {}

    @classmethod
    def open(cls, path: Path) -> JobFile:
        """Reads and checks every line. Raises ConfigError naming line and field of what is wrong; ids are unique."""
        file, digest, place = cls(path), hashlib.sha256(), 0
        seen: dict[str, int] = {}
        mistakes: list[str] = []
        try:
            with path.open("rb") as stream:
                for number, line in enumerate(stream, 1):
                    digest.update(line)
                    if line.strip():
                        try:
                            file._add(line, number, place, seen)
                        except ConfigError as error:
                            mistakes.append(f"{path}, line {number}, {error}")
                    place += len(line)
        except OSError as error:
            raise ConfigError(f"cannot read the jobs in {path}: {error.strerror or error}") from error
        if mistakes:
            more = [f"and {len(mistakes) - _MOST_SAID} more"] if len(mistakes) > _MOST_SAID else []
            raise ConfigError("\n".join([*mistakes[:_MOST_SAID], *more]))
        if not file._entries:
            raise ConfigError(f"{path}: there are no jobs in it: write one JSON object a line")
        file.sha256 = digest.hexdigest()
        return file

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def questions(self) -> int:
        """The questions of all jobs: as many records will there be."""
        return sum(entry.questions for entry in self._entries)

    def numbers(self) -> dict[str, int]:
        """The place of each job in the file, by its id."""
        return {entry.id: number for number, entry in enumerate(self._entries)}

    def __iter__(self) -> Iterator[Job]:
        """The jobs in order, each loaded when it is asked for. Raises ConfigError if the file has changed since."""
        return self._loaded(range(len(self)))

    def asked(self, number: int) -> tuple[str, ...]:
        """The questions of a job; none if its line has changed since the file was opened."""
        try:
            [job] = self._loaded([number])
        except (ConfigError, OSError):
            return ()
        return job.questions

    def longest_first(self) -> Iterator[Job]:
        """The jobs by the size of their documents, so that no long one is left when all others have ended. Of folders and
        patterns the size is not known: they come last."""
        return self._loaded(sorted(range(len(self)), key=lambda number: -self._entries[number].bytes))

    def first_line(self, form: int) -> int:
        """The line of the first job of a form."""
        return next(entry.line for entry in self._entries if entry.form == form)

    def _loaded(self, numbers: Iterable[int]) -> Iterator[Job]:
        for number in numbers:
            entry = self._entries[number]
            with self.path.open("rb") as stream:
                stream.seek(entry.place)
                raw = stream.read(entry.size)
            try:
                line = self._parsed(raw)
                unchanged = _id(line, raw) == entry.id
            except ConfigError:
                unchanged = False
            if not unchanged:
                raise ConfigError(f"{self.path}, line {entry.line}: the file has changed since the command began")
            yield self._job(number, entry, line)

    def _job(self, number: int, entry: _Entry, line: JobLine) -> Job:
        return Job(
            number=number,
            id=entry.id,
            questions=line.asked,
            form=entry.form,
            given=tuple(line.named),
            paths=tuple(map(self._absolute, line.named)),
            text=line.text,
            meta=line.meta,
        )

    def _absolute(self, path: str) -> str:
        whole = self.path.absolute().parent / Path(path).expanduser()
        return os.path.normpath(whole)

    def _add(self, raw: bytes, number: int, place: int, seen: dict[str, int]) -> None:
        line = self._parsed(raw)
        id = _id(line, raw)
        if id in seen:
            what = f"id: {id!r} stands" if line.id else "the whole: the same job stands"
            raise ConfigError(f"{what} in line {seen[id]} already")
        seen[id] = number
        if "-" in line.named:
            raise ConfigError("document: '-' is standard input, which is there only once: name files")
        form = Form(reader=line.reader, schema=self._schema(line.form))
        if form not in self.forms:
            self.forms.append(form)
        paths = [self._absolute(path) for path in line.named]
        missing = [given for given, path in zip(line.named, paths, strict=True) if not _may_exist(path)]
        self.missing += [(number, path) for path in missing]
        size = sum(map(_size, paths)) if paths else len(raw)
        self._entries.append(_Entry(id, number, place, len(raw), self.forms.index(form), len(line.asked), size))

    def _schema(self, given: str | dict[str, Any] | None) -> str:
        if given is None:
            return ""
        key = json.dumps(given, sort_keys=True)
        if key not in self._schemas:
            try:
                self._schemas[key] = schema_text(self._absolute(given) if isinstance(given, str) else given)
            except ConfigError as error:
                raise ConfigError(f"schema: {error}") from error
        return self._schemas[key]

    @staticmethod
    def _parsed(raw: bytes) -> JobLine:
        """Raises ConfigError that begins with the field."""
        try:
            values = strict_json.loads(raw.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"the whole: not JSON: {error}") from error
        if not isinstance(values, dict):
            raise ConfigError(f"the whole: a job is an object, not a {type(values).__name__}")
        if unknown := next((name for name in values if name not in _FIELDS), None):
            raise ConfigError(f"{unknown}: there is no such field; there are {', '.join(_FIELDS)}")
        try:
            return JobLine.model_validate(values)
        except ValidationError as error:
            where, said = finding(error, branches=("str", "constrained-str", "dict"))
            raise ConfigError(f"{where or 'the whole'}: {said}") from error


def _id(line: JobLine, raw: bytes) -> str:
    """The id of a job, or one that follows from what the line says, in whatever order and with whatever spaces."""
    if line.id is not None:
        return line.id
    values = json.dumps(json.loads(raw.decode("utf-8-sig")), sort_keys=True)
    return f"job-{hashlib.sha256(values.encode()).hexdigest()[:16]}"


def _may_exist(path: str) -> bool:
    """Whether something is there. A pattern is looked up when its turn comes."""
    return glob.has_magic(path) or Path(path).exists()


def _size(path: str) -> int:
    """The bytes of a file; 0 of what is none, or cannot be looked at."""
    try:
        return Path(path).stat().st_size if Path(path).is_file() else 0
    except (OSError, ValueError):
        return 0
