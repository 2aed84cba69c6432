"""A document that has grown: which turns of its reading still hold, and where the text before the end is another one.

A chunk depends only on the text from its start on, so all chunks of the old document but the last are chunks of the grown
one as well. A reader that goes chunk by chunk has shown them already, with the same memories: its reading goes on from
there, and ends as one reading of the grown document would have ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

from memagent.core import Chunks
from memagent.documents import Document
from memagent.documents.spool import CHECKED
from memagent.errors import JournalError
from memagent.journal import ReadingRecord, TurnEntry

# What these show of a chunk does not depend on what comes after it.
READERS = ("memory", "gated", "recall", "append", "parallel")
_BLOCK = 1 << 20


def check_grown(record: ReadingRecord, document: Document) -> None:
    """Raises JournalError if a reading cannot go on in a document: for its reader or status, or because the text that it
    read is not the beginning of this one; says about where the two part."""
    reader, before = record.settings.get("reader"), int(str(record.document["characters"]))
    if reader not in READERS:
        raise JournalError(
            f"reading {record.id} used the reader {reader!r}, which chooses what it reads from the whole document:"
            f" ask again. {', '.join(READERS)} can go on"
        )
    if record.status != "answered":
        raise JournalError(f"reading {record.id} is {record.status}: end it first with memagent resume {record.id}")
    if len(document) < before:
        raise JournalError(
            f"the document has {len(document):,} characters, and had {before:,} in reading {record.id}: it did not grow."
            " Read it again"
        )
    if digest(document, before) != record.document["digest"]:
        raise JournalError(
            f"the text that reading {record.id} read has changed{_where(record.document, document)}: only what is added at"
            " the end can be read on. Read the document again"
        )


def digest(document: Document, end: int) -> str:
    """The digest of the first `end` characters of a document, as `Document.digest` is that of all."""
    made = hashlib.sha256()
    for start in range(0, end, _BLOCK):
        made.update(document.read(start, min(end, start + _BLOCK)).encode())
    return made.hexdigest()


def turns_kept(turns: Iterable[TurnEntry], chunks: Chunks, before: int) -> int:
    """How many turns of a reading hold in the grown document, of which the first `before` characters are the old one.

    They end before the first turn that is none of the first pass, that showed the old last chunk where it goes on now, or
    that ended the reading before the document.
    """
    last = next(chunk for chunk in chunks if chunk.end >= before)
    stable = before if last.end == before else last.start

    def holds(entry: TurnEntry) -> bool:
        first_pass = entry.id.startswith(("chunk-", "round-1/chunk-"))
        return first_pass and entry.outcome != "enough" and all(end <= stable for _, end in entry.spans)

    return sum(1 for _ in takewhile(holds, turns))


def _where(old: Mapping[str, Any], document: Document) -> str:
    """About where two texts part, in words; "" if it is not known."""
    checks = old.get("checks", ())
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(checks, document.checks, strict=False)))
    if not checks:
        return ""
    start = same * CHECKED
    until = f" and {start + CHECKED:,}" if same < len(checks) else " and its end"
    return f" between characters {start:,}{until} ({document.locate(start)})"
