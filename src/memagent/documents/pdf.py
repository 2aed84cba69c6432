"""PDF → text, one piece a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memagent.documents.source import Source, optional

_END_WITHIN = 2048
"""Bytes at the end of a file among which the end marker must be; readers forgive some bytes after it."""


def read_pdf(source: Source) -> Iterator[str]:
    """The text of each page, in order; "" for a page without any. Raises DocumentError before the first page if it can."""
    pypdf = optional("pypdf", "reading PDF files")
    damaged = source.error("damaged PDF", "Open it in a PDF viewer and print it to a new PDF file, or fetch it again")
    # pypdf rebuilds a table of contents from whatever is there: half a file would read as a shorter one.
    if b"%%EOF" not in source.tail(_END_WITHIN):
        raise source.error("truncated PDF: its end is missing", "Copy or download it again")
    try:
        reader = pypdf.PdfReader(source.stream)
        if reader.is_encrypted:
            _unlock(source, reader)
        count = len(reader.pages)
    except (MemoryError, type(damaged)):
        raise
    except Exception as error:  # pypdf meets damage with nearly any exception
        raise damaged from error
    for number in range(count):
        yield _page(source, reader, number)


def _unlock(source: Source, reader: Any) -> None:
    """Opens a file that only restricts printing or copying; one that needs a password is refused."""
    errors = optional("pypdf.errors", "reading PDF files")
    try:
        unlocked = reader.decrypt("")
    except errors.DependencyError:  # AES without the library for it
        unlocked = 0
    if not unlocked:
        raise source.error("encrypted PDF", "Remove its password first, for example with: qpdf --decrypt in.pdf out.pdf")


def _page(source: Source, reader: Any, number: int) -> str:
    """The text of page `number` (from 0), ending in a line end unless it is empty."""
    try:
        text: str = reader.pages[number].extract_text()
    except Exception as error:  # see above
        raise source.error(f"page {number + 1} of this PDF is damaged ({error})", "Print it to a new PDF file") from error
    # A broken font table gives halves of surrogate pairs: join what belongs together, mark what does not.
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if not text.strip():
        return ""
    return text if text.endswith("\n") else text + "\n"
