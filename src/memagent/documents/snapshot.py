"""An append-only copy of the text of files: what was read stays as it was read, whatever becomes of the files.

A folder with one text file for each part, and `parts.json`. A new file is a part, and so is what was added at the end of a
known one; if its last line goes on, the part begins with that line once more, so that some part has all of it. A file that
was edited before its end, or deleted, keeps its parts and is reported. So the document that the parts make only ever grows
at the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from memagent.core.types import Span
from memagent.documents.document import Document, Kind, SourceFile
from memagent.documents.loading import joined
from memagent.errors import DocumentError
from memagent.files import atomic_file

_PARTS = "parts.json"
_LONGEST_LINE = 4096  # characters of a line that are read again when it goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a file's text: `characters` of it, from character `offset` of the file on.

    `digest` is the SHA-256 of the file's text up to the end of this part; `pages` are those within
    the part. `line` and `page` are the numbers of its first ones in the file.
    """

    name: str
    kind: Kind
    encoding: str | None
    bytes: int
    offset: int
    characters: int
    digest: str
    pages: tuple[tuple[int, int], ...] = ()
    line: int = 1
    page: int = 1
    guessed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What became of the files since the last update, by name. Edited and deleted ones were not read again."""

    new: tuple[str, ...] = ()
    grown: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


@dataclass(slots=True)
class Snapshot:
    """The parts in a folder, which is created when the first is written."""

    folder: Path
    parts: list[Part] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path) -> Snapshot:
        """The snapshot in a folder. Raises DocumentError if it is damaged."""
        path = folder / _PARTS
        try:
            values = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
            parts = [Part(**{**one, "pages": tuple((start, end) for start, end in one["pages"])}) for one in values]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DocumentError(f"{path} is damaged ({error}): rebuild it from the files") from error
        return cls(folder, parts)

    def update(self, document: Document) -> Changes:
        """Adds what is new in the files of a document. The parts are on disk when it returns, all or none."""
        known = {part.name: part for part in self.parts}  # the last part of each file
        added: list[tuple[Part, str]] = []
        new, grown, edited = list[str](), list[str](), list[str]()
        for file in document.files:
            last = known.pop(file.name, None)
            read = last.offset + last.characters if last else 0
            if last and (
                len(file.span) < read or document.digest_of(file.span.start, file.span.start + read) != last.digest
            ):
                edited.append(file.name)
            elif document.read(file.span.start + read, file.span.end).strip():
                start = _line_start(document, file.span.start, file.span.start + read)
                added.append((_part(document, file, start), document.read(start, file.span.end)))
                (grown if last else new).append(file.name)
        self._write(added)
        return Changes(new=tuple(new), grown=tuple(grown), edited=tuple(edited), deleted=tuple(known))

    def document(self, count: int | None = None) -> Document:
        """The text of the first `count` parts (None: all), with the names and pages of their files."""
        return joined(self._texts(self.parts[:count]))

    def _texts(self, parts: Sequence[Part]) -> Iterator[tuple[SourceFile, str]]:
        for number, part in enumerate(parts):
            path = self._path(number)
            try:
                text = path.read_bytes().decode("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise DocumentError(f"{path} cannot be read ({error}): rebuild it from the files") from error
            pages = tuple(Span(start=start, end=end) for start, end in part.pages)
            file = SourceFile(
                name=part.name,
                kind=part.kind,
                encoding=part.encoding,
                bytes=part.bytes,
                span=Span(start=0, end=part.characters),
                pages=pages,
                first_offset=part.offset,
                first_line=part.line,
                first_page=part.page,
                guessed=part.guessed,
            )
            yield file, text

    def _write(self, added: Sequence[tuple[Part, str]]) -> None:
        if not added:
            return
        for number, (_, text) in enumerate(added, len(self.parts)):
            with atomic_file(self._path(number)) as file:
                file.write(text)
        parts = [*self.parts, *(part for part, _ in added)]
        with atomic_file(self.folder / _PARTS) as file:
            json.dump([asdict(part) for part in parts], file)  # names may have bytes that are not UTF-8
        self.parts = parts

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06}.txt"


def _line_start(document: Document, first: int, place: int) -> int:
    """Where the line begins that goes on at a place of a file, or the place itself if a line begins there, or a long one
    goes on."""
    low = max(first, place - _LONGEST_LINE)
    before = document.read(low, place)
    line = before.rfind("\n") + 1
    return low + line if line or low == first else place


def _part(document: Document, file: SourceFile, start: int) -> Part:
    """The part of a file from a character of the document on."""
    pages = [page for page in file.pages if page.end > start] if start > file.span.start else file.pages
    return Part(
        name=file.name,
        kind=file.kind,
        encoding=file.encoding,
        guessed=file.guessed,
        bytes=file.bytes,
        offset=start - file.span.start,
        characters=file.span.end - start,
        digest=document.digest_of(file.span.start, file.span.end),
        pages=tuple((max(0, page.start - start), page.end - start) for page in pages),
        line=document.locate(start).line or 1,
        page=len(file.pages) - len(pages) + 1,
    )
