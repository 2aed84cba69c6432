"""Sample files: one JSON object per line, checked field by field, and written atomically.

A document stands in its line, or in a text file beside it that many lines share:

    {"document": "the text"}
    {"document": {"file": "book.text", "sha256": "…", "pieces": [[0, 5200], "One sentence more. ", [5200, 9000]]}}

Pieces are characters [start, end) of the shared file or strings of the document's own, in order; without "pieces" the
document is the whole file. File names are relative to the sample file, and lead nowhere but into its folder: a sample file
from elsewhere must not send other files to a server. `docs/reference/samples.md` describes every field.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from memagent import strict_json
from memagent.core.types import Span
from memagent.errors import OutputError, TaskError
from memagent.files import check_regular
from memagent.scoring import Mode
from memagent.suite_scoring import known_scorer
from memagent.tables import finding
from memagent.tasks.lazy_text import LazyText, Piece
from memagent.tasks.samples import Fact, Sample, checked

Offset = Annotated[int, Field(ge=0)]

MOST_TOKENS = 10**12
_DEEPEST = 64
_TOO_DEEP = f"lists and objects within each other, more than {_DEEPEST} deep"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SharedDocument(_Strict):
    """A document in a UTF-8 file beside the sample file. `sha256` is that of the file's bytes, if given."""

    file: str = Field(min_length=1)
    sha256: str | None = None
    pieces: list[Annotated[list[Offset], Field(min_length=2, max_length=2)] | str] | None = None


class FactLine(_Strict):
    """A fact, as `memagent.tasks.samples.Fact`."""

    text: str
    start: Offset
    end: Offset
    key: str = ""
    value: str = ""
    needed: bool = True


class SampleLine(_Strict):
    """A line of a sample file. Only `question`, `document` and `answers` are required."""

    id: str | None = Field(None, min_length=1)
    task: str = Field("custom", min_length=1)
    question: str = Field(min_length=1)
    document: str | SharedDocument
    answers: list[Annotated[str, Field(min_length=1)]] = Field(min_length=1)
    mode: Mode = "any"
    facts: list[FactLine] = []
    tokens: int = Field(0, ge=0, le=MOST_TOKENS)
    seed: int | None = None
    scorer: Annotated[str, AfterValidator(known_scorer)] = ""
    meta: dict[str, JsonValue] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A sample without its document. `place` and `size` are the bytes of its line, and `digest` is their digest."""

    id: str
    task: str
    tokens: int
    line: int
    place: int
    size: int
    digest: bytes


class SampleFile:
    """A checked sample file. It keeps the places of lines and loads samples on request; shared texts stay loaded.

    Open it with `SampleFile.open`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: tuple[Entry, ...] = ()
        self.sha256 = ""
        self._bases: dict[str, tuple[str, str]] = {}
        self._by_id: dict[str, Entry] = {}

    @classmethod
    def open(cls, path: str | Path) -> SampleFile:
        """Reads and checks every line. Raises TaskError naming file, line and field; two samples may not share an id."""
        file = cls(Path(path))
        entries: list[Entry] = []
        seen: dict[str, int] = {}
        digest = hashlib.sha256()
        place = 0
        for number, line in enumerate(file._lines(), 1):
            digest.update(line)
            if line.strip():
                sample = file._parse(line, number)
                if sample.id in seen:
                    raise file._error(number, "id", f"{sample.id!r} stands in line {seen[sample.id]} already")
                seen[sample.id] = number
                entry = Entry(
                    id=sample.id,
                    task=sample.task,
                    tokens=sample.tokens,
                    line=number,
                    place=place,
                    size=len(line),
                    digest=_digest(line),
                )
                entries.append(entry)
            place += len(line)
        if not entries:
            raise TaskError(f"{path}: the file has no samples")
        for name, (_, base) in sorted(file._bases.items()):
            digest.update(f"{name}\0{base}".encode())
        file.entries, file.sha256 = tuple(entries), digest.hexdigest()
        file._by_id = {entry.id: entry for entry in entries}
        return file

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Sample]:
        return (self.load(entry.id) for entry in self.entries)

    def load(self, id: str) -> Sample:
        """The sample with this id. Raises KeyError if there is none, TaskError if the file has changed."""
        entry = self._by_id[id]
        with self._opened() as stream:
            stream.seek(entry.place)
            line = stream.read(entry.size)
        if _digest(line) != entry.digest:
            raise TaskError(f"{self.path}, line {entry.line}: the file has changed since it was opened")
        return self._parse(line, entry.line)

    def _lines(self) -> Iterator[bytes]:
        with self._opened() as stream:
            yield from stream

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        try:
            with self.path.open("rb") as stream:
                yield stream
        except OSError as error:
            raise TaskError(f"{self.path}: cannot be read: {error.strerror or error}") from error

    def _parse(self, line: bytes, number: int) -> Sample:
        values = self._values(line, number)
        try:
            given = SampleLine.model_validate(values)
        except ValidationError as error:
            place, said = finding(error, SampleLine, branches=("str", "SharedDocument"))
            raise self._error(number, place or "the line", said) from error
        target = given.meta.get("target", 1)
        if type(target) is not int or not 1 <= target <= MOST_TOKENS:
            raise self._error(number, "meta.target", f"a length in tokens is an integer from 1 to {MOST_TOKENS:,}")
        document = self._document(given.document, number)
        for index, fact in enumerate(given.facts):
            if document.read(fact.start, fact.end) != fact.text:
                raise self._error(number, f"facts.{index}", f"its text is not at characters {fact.start} to {fact.end}")
        if not len(document):
            raise self._error(number, "document", "it is empty")
        values = given.model_dump(exclude={"document", "facts", "answers", "id"})
        sample = Sample(
            id=given.id or f"line-{number}",
            document=document,
            answers=tuple(given.answers),
            facts=tuple(Fact(**fact.model_dump()) for fact in sorted(given.facts, key=lambda fact: fact.start)),
            **values,
        )
        try:
            return checked(sample)
        except TaskError as error:
            raise self._error(number, "answers", str(error)) from error

    def _values(self, line: bytes, number: int) -> Any:
        """The JSON of a line, with finite numbers, text that UTF-8 can encode, and limited nesting."""
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            values = strict_json.loads(text)
        except ValueError as error:
            raise TaskError(f"{self.path}, line {number}: not a line of JSON: {error}") from error
        except RecursionError as error:
            raise self._error(number, "the line", _TOO_DEEP) from error
        if (flaw := _flaw(values)) is not None:
            raise self._error(number, *flaw)
        return values

    def _document(self, given: str | SharedDocument, number: int) -> LazyText:
        if isinstance(given, str):
            return LazyText([given])
        base = self._base(given, number)
        if given.pieces is None:
            return LazyText([Span(start=0, end=len(base))], base)
        pieces: list[Piece] = []
        for index, piece in enumerate(given.pieces):
            if isinstance(piece, str):
                pieces.append(piece)
                continue
            start, end = piece
            if not start <= end <= len(base):
                where = f"document.pieces.{index}"
                raise self._error(
                    number, where, f"[{start}, {end}] is not within the {len(base)} characters of {given.file}"
                )
            pieces.append(Span(start=start, end=end))
        return LazyText(pieces, base)

    def _base(self, given: SharedDocument, number: int) -> str:
        if given.file not in self._bases:
            path = self.path.parent / given.file
            try:
                folder = self.path.parent.resolve()
                if Path(given.file).is_absolute() or not path.resolve().is_relative_to(folder):
                    message = f"{given.file} leads out of the folder of the sample file: give a relative name within it"
                    raise self._error(number, "document.file", message)
                raw = path.read_bytes()
                self._bases[given.file] = hashlib.sha256(raw).hexdigest(), raw.decode("utf-8")
            except (OSError, ValueError, RuntimeError) as error:  # ValueError: a NUL; RuntimeError: circular links
                raise self._error(number, "document.file", f"{path} cannot be read as UTF-8 text: {error}") from error
        digest, base = self._bases[given.file]
        if given.sha256 not in (None, digest):
            raise self._error(
                number, "document.sha256", f"{given.file} has changed: it is {digest[:12]}…, not {given.sha256[:12]}…"
            )
        return base

    def _error(self, number: int, field: str, message: str) -> TaskError:
        return TaskError(f"{self.path}, line {number}, {field}: {message}")


def _digest(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=8).digest()


def _flaw(values: Any) -> tuple[str, str] | None:
    """A field has an invalid value."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), values)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, str):
            if not _is_text(value):
                return ".".join(place) or "the line", "half of a surrogate pair is not text"
        elif isinstance(value, dict | list):
            if len(place) >= _DEEPEST:
                return place[0], _TOO_DEEP
            if isinstance(value, dict) and not all(map(_is_text, value)):
                return ".".join(place) or "the line", "half of a surrogate pair in the name of a field is not text"
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [((*place, str(key)), inner) for key, inner in pairs]
    return None


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Shared:
    """The name and digest of a shared text file."""

    file: str
    sha256: str


def sample_line(sample: Sample, shared: Shared | None) -> str:
    """A sample as a line of a file, without the line end. With `shared`, the document refers to that file."""
    document: Any = str(sample.document)
    if shared is not None:
        pieces = [[piece.start, piece.end] if isinstance(piece, Span) else piece for piece in sample.document.pieces]
        document = {"file": shared.file, "sha256": shared.sha256, "pieces": pieces}
    values: Mapping[str, Any] = {
        "id": sample.id,
        "task": sample.task,
        "question": sample.question,
        "answers": sample.answers,
        "mode": sample.mode,
        "facts": [asdict(fact) for fact in sample.facts],
        "tokens": sample.tokens,
        "seed": sample.seed,
        **({"scorer": sample.scorer} if sample.scorer else {}),
        "meta": dict(sample.meta),
        "document": document,
    }
    return json.dumps(values, ensure_ascii=False)


# Fields that every sample has that is made here, and other samples and questions hardly all have.
_MADE = {"id", "task", "question", "answers", "facts", "seed", "meta"}


def check_replaceable(path: Path) -> None:
    """Raises OutputError if something is at `path` that could not be made again: another file than one of samples, or
    samples that memagent has not made. An empty file may be replaced."""
    check_regular(path)
    try:
        with path.open("rb") as stream:
            beginning = stream.read(64)
            stream.seek(0)
            # Other files may have no line end, so a whole line is read only if it may be JSON.
            line = stream.readline() if beginning.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{") else b""
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputError(f"{path} exists and cannot be read ({error.strerror or error}): choose another name") from error
    try:
        values = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        values = None
    if beginning and not (isinstance(values, dict) and values.keys() >= _MADE):
        raise OutputError(f"{path} exists and is not a sample file that memagent made: choose another name, or delete it")
