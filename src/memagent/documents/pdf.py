"""PDF → text, one piece a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from memagent.documents.source import Source, optional

_FEATURE = "reading PDF files"
_UNLOCK = "Remove the password first, for example with: qpdf --password=... --decrypt in.pdf out.pdf"
_REPRINT = "Open it in a PDF viewer and print it to a new PDF file"

# A word that goes on in the next line. Its hyphen stays: nobody can tell whether it was there before the line end. In
# "pre- and post-war", it does not go on.
_LINE_END = re.compile(r"(?<=[^\W\d_][-\u2010])[ \t]*\r?\n(?=[^\W\d_])(?!(?:and|or|to|und|oder|bis|et|ou|y|o|e)\b)")

# A line goes on in the next one if it is about as long as the longest of its page, ends no sentence, and the next begins
# with a small letter or a digit. Lines of a table are short, or have columns, which two spaces set apart.
_FULL = 0.6
_GOES_ON = re.compile(r"(?<![-.:;!?\s])[ \t]*\r?\n(?=[a-z\d])")
_COLUMNS = re.compile(r"\S\s{2,}\S|\t")

_END_WITHIN = 2048
"""Bytes at the end of a file among which the end marker must be; readers forgive some bytes after it."""


def read_pdf(source: Source) -> Iterator[str]:
    """The text of each page, in order; "" for a page without any. Raises DocumentError before the first page if it can."""
    pypdf = optional("pypdf", _FEATURE)
    errors = optional("pypdf.errors", _FEATURE)
    # pypdf rebuilds a table of contents from whatever is there: half a file would read as a shorter one.
    if b"%%EOF" not in source.tail(_END_WITHIN):
        raise source.error("truncated PDF: its end is missing", "Copy or download it again")
    try:
        reader = pypdf.PdfReader(source.stream)
        # Files that only restrict printing or copying open with an empty password.
        locked = reader.is_encrypted and not reader.decrypt("")
        count = 0 if locked else len(reader.pages)
    except MemoryError:
        raise
    except errors.DependencyError as error:
        raise source.error(
            "encrypted PDF, with AES", f"Install cryptography: pip install 'pypdf[crypto]'. {_UNLOCK}"
        ) from error
    except Exception as error:  # pypdf meets damage with nearly any exception
        raise source.error(f"damaged PDF ({error})", f"{_REPRINT}, or fetch it again") from error
    if locked:
        raise source.error("encrypted PDF: it needs a password", _UNLOCK)
    for number in range(count):
        yield _page(source, reader, number)


def _page(source: Source, reader: Any, number: int) -> str:
    """The text of page `number` (from 0), ending in a line end unless it is empty."""
    try:
        text: str = reader.pages[number].extract_text()
    except Exception as error:  # see above
        raise source.error(f"page {number + 1} of this PDF is damaged ({error})", _REPRINT) from error
    # A broken font table gives halves of surrogate pairs: join what belongs together, mark what does not.
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if not text.strip():
        return ""
    text = _flowing(_LINE_END.sub("", text))
    return text if text.endswith("\n") else text + "\n"


def _flowing(text: str) -> str:
    """The text of a page with the lines of a paragraph joined."""
    lines = text.split("\n")
    full = _FULL * max(map(len, lines))
    joined = [lines[0]]
    for before, line in pairwise(lines):
        flows = len(before) >= full and _GOES_ON.search(f"{before}\n{line}") is not None
        if flows and not _COLUMNS.search(before) and not _COLUMNS.search(line):
            joined[-1] = f"{joined[-1].rstrip()} {line}"
        else:
            joined.append(line)
    return "\n".join(joined)
