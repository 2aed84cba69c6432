"""Sources → one Document.

Between two files stands the border that leaves exactly one blank line: "\\n\\n", less the line ends (at most two) that the
text before already ends in. It belongs to neither file. Nothing else is added, and no header.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from memagent.core.types import Span, Text
from memagent.documents.archive import gunzip
from memagent.documents.decoding import Encoding, codec_name, decode, detect
from memagent.documents.discovery import Found, broken, discover, nothing_to_read, paths_of
from memagent.documents.document import PAGED, Document, Kind, Skipped, SourceFile
from memagent.documents.docx import read_docx
from memagent.documents.epub import read_epub
from memagent.documents.html import html_text
from memagent.documents.mail import read_eml, read_mbox
from memagent.documents.odt import read_odt
from memagent.documents.pdf import read_pdf
from memagent.documents.pptx import read_pptx
from memagent.documents.sniff import is_gzip, kind_of
from memagent.documents.source import CHUNK, FAULTS, MachineError, Source, scratch
from memagent.documents.spool import Spool
from memagent.errors import ConfigError, DocumentError

_READERS: dict[Kind, Callable[[Source], Iterator[str]]] = {
    "pdf": read_pdf,
    "docx": read_docx,
    "pptx": read_pptx,
    "odt": read_odt,
    "epub": read_epub,
    "eml": read_eml,
    "mbox": read_mbox,
}
_KNOWN = ("encoding", "guessed", "first_offset", "first_line", "first_page")  # of a part that was read before


def load(
    paths: str | Path | Sequence[str | Path],
    *,
    encoding: str | None = None,
    stdin: BinaryIO | None = None,
    skip_broken: bool = False,
) -> Document:
    """Reads files, folders (recursively), globs (`**` too) and standard input ("-") into one document.

    Read are: anything that decodes as text, HTML, PDF, DOCX, PPTX, ODT, EPUB, e-mail (.eml, .mbox), and these inside .gz.
    Text keeps every character and line end; only a leading byte order mark is dropped. `encoding` overrides detection for
    text and HTML. `stdin` replaces sys.stdin.buffer.

    A file asked for by name is read, or it is an error. In folders and globs, files that plainly are no documents (images,
    archives, programs, hidden or empty files) are listed in `Document.skipped`; any other file that cannot be read is an
    error as well, and so are a folder and a link to nothing, or, with `skip_broken`, they are listed there as `broken`.
    Raises DocumentError naming the file, the problem and the way out, a BrokenFileError for such a file; ConfigError for an
    unknown encoding; MissingExtraError when a format needs the `documents` extra.
    """
    if not isinstance(skip_broken, bool):
        raise ConfigError(f"skip_broken is {skip_broken!r}; it must be True or False")
    paths = paths_of(paths)
    codec = codec_name(encoding) if encoding is not None else None
    found, skipped = discover(paths, skip_broken=skip_broken)
    joiner = _Joiner()
    with ExitStack() as undo:
        undo.callback(joiner.spool.close)
        for file in found:
            try:
                _add(joiner, file, stdin, codec, skipped, whole=skip_broken and not file.named)
            except DocumentError as error:
                if file.named:
                    raise
                skipped.append(broken(file.name, error, skip_broken=skip_broken))
        if not joiner.files:
            raise nothing_to_read(paths, skipped)
        undo.pop_all()
    return Document(joiner.spool, joiner.files, skipped, {"encoding": encoding, "skip_broken": skip_broken})


def from_text(text: str | Text, name: str = "text") -> Document:
    """A document of one text: a str, or what reads like one, such as the document of a sample.

    Raises DocumentError when it is no text, is blank, or holds a lone surrogate, which is no character.
    """
    if not isinstance(text, str):
        if isinstance(text, bytes | bytearray | memoryview) or not (hasattr(text, "read") and hasattr(text, "__len__")):
            raise DocumentError(f"{name}: the text is to be a str, not {type(text).__name__}: decode or read it first")
        text = text.read(0, len(text))
    if not text.strip():
        raise DocumentError(f"{name}: there is nothing to read, the text is empty or blank. Give it some text")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise DocumentError(
            f"{name}: a lone surrogate at character {error.start}. Decode the text with errors='replace'"
        ) from error
    joiner = _Joiner()
    joiner.add(name, "text", Encoding(codec="utf-8"), size, [text])
    return Document(joiner.spool, joiner.files)


def joined(parts: Iterable[tuple[SourceFile, str]]) -> Document:
    """A document of texts that were read before, under the names of their files. The spans of a file say nothing here; its
    pages are those within its text, and where it begins in its file is kept. Raises DocumentError if there is no text."""
    joiner = _Joiner()
    with ExitStack() as undo:
        undo.callback(joiner.spool.close)
        for file, text in parts:
            pieces = [text[page.start : page.end] for page in file.pages] if file.pages else [text]
            if joiner.add(file.name, file.kind, None, file.bytes, pieces):
                known = {name: getattr(file, name) for name in _KNOWN}
                joiner.files[-1] = replace(joiner.files[-1], **known)
        if not joiner.files:
            raise DocumentError("there is nothing to read: no text was kept")
        undo.pop_all()
    return Document(joiner.spool, joiner.files)


class _Joiner:
    """Appends one file's text after the other and keeps the record of where each lies."""

    def __init__(self) -> None:
        self.spool = Spool()
        self.files: list[SourceFile] = []

    def add(self, name: str, kind: Kind, encoding: Encoding | None, size: int, pieces: Iterable[str]) -> bool:
        """Appends a file. False, and nothing is appended, when its text is empty or only white space."""
        text = _unless_blank(pieces)
        if text is None:
            return False
        if self.files:
            self._border()
        start = len(self.spool)
        pages = []
        for piece in text:
            before = len(self.spool)
            self.spool.append(piece)
            pages.append(Span(start=before, end=len(self.spool)))
        span = Span(start=start, end=len(self.spool))
        self.files.append(
            SourceFile(
                name=name, kind=kind, bytes=size, span=span,
                encoding=encoding.name if encoding else None, guessed=encoding is not None and encoding.guessed,
                pages=tuple(pages) if kind in PAGED else (),
            )
        )  # fmt: skip
        return True

    def _border(self) -> None:
        tail = self.spool.tail
        ends = len(tail) - len(tail.rstrip("\n"))
        self.spool.append("\n" * (2 - ends))


def _unless_blank(pieces: Iterable[str]) -> Iterator[str] | None:
    """The pieces unchanged, or None if together they are blank. Holds back only the white space at the start."""
    rest = iter(pieces)
    held = []
    for piece in rest:
        held.append(piece)
        if piece and not piece.isspace():
            return itertools.chain(held, rest)
    return None


def _add(
    joiner: _Joiner, file: Found, stdin: BinaryIO | None, codec: str | None, skipped: list[Skipped], *, whole: bool
) -> None:
    """Reads one file into the document, or notes why it was skipped. Raises DocumentError; then nothing of the file is in
    the document if it was to be read `whole` first."""
    try:
        with _opened(file, stdin, codec) as (source, size):
            kind = kind_of(source) if size else "text"
            encoding, pieces = _text_of(source, kind)
            if joiner.add(file.name, kind, encoding, size, _read_whole(pieces) if whole else pieces):
                return
            if file.named or kind in _READERS:  # a scanned PDF holds something that would be lost
                raise _blank(source, kind, size)
            skipped.append(Skipped(path=file.name, reason="no text in it" if size else "empty"))
    except UnicodeEncodeError as error:
        raise DocumentError(f"{file.name}: {codec} gives lone surrogates here. Name another `encoding`") from error
    except OSError as error:
        if error.errno in FAULTS:  # what is packed is unpacked to a temporary file
            raise MachineError.of(error) from error
        raise DocumentError(
            f"{file.name}: cannot be read ({error.strerror}). Check its permissions, and the disk"
        ) from error


def _read_whole(pieces: Iterable[str]) -> Iterator[str]:
    """The pieces, the first of them once all could be read. They are kept outside memory."""
    spool, ends = Spool(), [0]
    with closing(spool):
        for piece in pieces:
            spool.append(piece)
            ends.append(len(spool))
        for start, end in itertools.pairwise(ends):
            yield spool.read(start, end)


def _text_of(source: Source, kind: Kind) -> tuple[Encoding | None, Iterator[str]]:
    """The encoding, where the format leaves it open, and the text in pieces."""
    if kind in _READERS:
        return None, _READERS[kind](source)
    encoding = detect(source, markup=kind == "html")
    pieces = decode(source, encoding)
    return encoding, html_text(source, pieces) if kind == "html" else pieces


def _blank(source: Source, kind: Kind, size: int) -> DocumentError:
    if kind == "pdf":
        return source.error("no text in this PDF, its pages are pictures", "Run text recognition (OCR) on it first")
    if kind in _READERS:
        return source.error(f"no text in this {kind.upper()} file, only pictures perhaps", "Name another file")
    what = "only white space, or markup without text" if size else "0 bytes"
    return source.error(f"there is nothing to read, the file is empty ({what})", "Name another file")


@contextmanager
def _opened(file: Found, stdin: BinaryIO | None, codec: str | None) -> Iterator[tuple[Source, int]]:
    """The content of a file or of standard input, unpacked if it is gzip'd, and its size in bytes as it was found."""
    with ExitStack() as stack:
        if file.path is None:
            if stdin is None and sys.stdin is None:
                raise DocumentError("standard input is closed: there is nothing to read. Name a file")
            stream = stack.enter_context(scratch())
            shutil.copyfileobj(stdin or sys.stdin.buffer, stream, CHUNK)
        else:
            stream = stack.enter_context(file.path.open("rb"))
        suffix = file.path.suffix.lower() if file.path else ""
        source = Source(name=file.name, suffix=suffix, stream=stream, encoding=codec)
        size = source.size()
        if is_gzip(source):
            source = gunzip(source, stack.enter_context(scratch()))
        yield source, size
