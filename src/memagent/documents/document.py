"""A document: one text with known file borders, whatever it was put together from."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, TypeAlias, TypedDict

from memagent.core.types import Span
from memagent.documents.spool import Spool
from memagent.threads import check_cancelled

Kind: TypeAlias = Literal["text", "markdown", "html", "pdf", "docx", "pptx", "odt", "epub", "eml", "mbox"]

_BLOCK = 1 << 20
_HAS_SOURCE_LINES = ("text", "markdown")
PAGED: dict[Kind, str] = {"pdf": "page", "pptx": "slide", "mbox": "message"}
"""Kinds whose readers give one piece of text a page, and what such a page is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file of a document.

    `span` is where its text lies in the joined text, borders not included. `bytes` is the size of the source as it was
    found (compressed, for .gz). `encoding` is a codec name for text and HTML, None for formats that say it themselves;
    `guessed` says that nothing but the letters of the text speaks for it.
    `pages` are the spans of the pages of a PDF (slides of a PPTX, messages of a mailbox) in the joined text, in order: they
    touch, and a page without text is empty.
    Of a part of a file, `first_offset`, `first_line` and `first_page` are where it begins there.
    """

    name: str
    kind: Kind
    encoding: str | None
    bytes: int
    span: Span
    pages: tuple[Span, ...] = ()
    first_offset: int = 0
    first_line: int = 1
    first_page: int = 1
    guessed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A file that was found in a folder and left out, with the reason. `broken`: it may be a document, and cannot be
    read."""

    path: str
    reason: str
    broken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A place in a source file, for people.

    `offset` counts characters from the start of the file's text: of the file itself for text and Markdown, of the extracted
    text for the other kinds. `page` (from 1) is known for the kinds in PAGED, and `paged` says what it is. `line` (from
    1) is known for text and Markdown.
    """

    file: str
    page: int | None
    offset: int
    line: int | None = None
    paged: str = "page"

    def __str__(self) -> str:
        page = f", {self.paged} {self.page}" if self.page is not None else ""
        line = f", line {self.line}" if self.line is not None else ""
        return f"{self.file}{page}{line}, offset {self.offset}"


class Loading(TypedDict):
    """How a document is loaded: options of `load`."""

    encoding: str | None
    skip_broken: bool


class Document:
    """A text on disk with known file borders; implements the port `memagent.core.types.Text`.

    It is a snapshot: sources may change or vanish after loading. Reading is safe from several threads. Close it, or use it
    as a context manager, to free the temporary file; a document that is dropped frees it as well.

    `follower` is told up to which character the document is read, each time: for those who show how far that is.
    """

    follower: Callable[[int], None] | None = None

    def __init__(
        self, spool: Spool, files: Sequence[SourceFile], skipped: Sequence[Skipped] = (), loading: Loading | None = None
    ) -> None:
        self._spool = spool
        self._starts = [file.span.start for file in files]
        self.files = tuple(files)
        self.skipped = tuple(skipped)
        self.loading: Loading = loading or {"encoding": None, "skip_broken": False}

    def __len__(self) -> int:
        return len(self._spool)

    def __repr__(self) -> str:
        return f"<Document of {len(self.files)} files, {len(self)} characters>"

    @property
    def digest(self) -> str:
        """SHA-256 of the joined text in UTF-8, in hexadecimal."""
        return self._spool.digest

    def digest_of(self, start: int, end: int) -> str:
        """The digest of characters [start, end), as `digest` is that of all. Memory use does not grow with them."""
        made = hashlib.sha256()
        for place in range(start, end, _BLOCK):
            made.update(self.read(place, min(end, place + _BLOCK)).encode())
        return made.hexdigest()

    @property
    def checks(self) -> tuple[int, ...]:
        """Checksums of its beginnings; see `Spool.checks`."""
        return self._spool.checks

    def read(self, start: int, end: int) -> str:
        """Characters [start, end), with the rules of slicing: `text[start:end]`."""
        check_cancelled()  # a long document is planned for minutes
        if self.follower is not None:
            self.follower(end)
        return self._spool.read(start, end)

    def locate(self, offset: int) -> Location:
        """Which file, page and line a character offset lies in.

        An offset in the border after a file, or at the end of the document, is the end of the file before it.
        Raises IndexError outside [0, len(document)].
        """
        if not 0 <= offset <= len(self):
            raise IndexError(f"offset {offset} is outside the document, which has {len(self)} characters")
        file = self.files[bisect_right(self._starts, offset) - 1]
        offset = min(offset, file.span.end)
        page = None
        if file.pages:
            page = bisect_right(file.pages, offset, key=lambda span: span.start) + file.first_page - 1
        line = None
        if file.kind in _HAS_SOURCE_LINES:
            line = self._spool.lines_before(offset) - self._spool.lines_before(file.span.start) + file.first_line
        place = offset - file.span.start + file.first_offset
        return Location(file=file.name, page=page, offset=place, line=line, paged=PAGED.get(file.kind, "page"))

    def close(self) -> None:
        """Deletes the temporary file. Reading afterwards raises ValueError."""
        self._spool.close()

    def __enter__(self) -> Document:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
