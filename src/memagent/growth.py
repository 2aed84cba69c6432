"""A document that has grown: which turns of its reading still hold, and where the text before the end is another one.

A cut depends only on the text before it and on a little after it, so all chunks of the old document but the last are chunks
of the grown one as well. A reader that goes chunk by chunk has shown them already, with the same memories: its reading goes
on from there, and ends as one reading of the grown document would have ended. A tokenizer may count otherwise where more
text follows: chunks near the old end are cut again, and read again if they are now others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from memagent.core import Chunks, Text
from memagent.core.readers import READERS
from memagent.documents import Document
from memagent.documents.spool import CHECKED
from memagent.errors import JournalError
from memagent.journal import Journal, ReadingRecord, TurnEntry
from memagent.result import Ledger

# The turn of a chunk of the first pass; of a piece of it, with its characters; asked again, with how often.
_FIRST_PASS = re.compile(r"(?:round-1/)?chunk-(\d+)(?::\d+-\d+)?(?:~\d+)?")


def growing() -> list[str]:
    """The names of the readers that can go on in a document that has grown."""
    return [name for name, reader in READERS.items() if getattr(reader, "grows", False)]


def check_grown(record: ReadingRecord, document: Document) -> None:
    """Raises JournalError if a reading cannot go on in a document: for its reader, or because the text that it read is not
    the beginning of this one; says about where the two part."""
    reader, before = record.settings.get("reader"), int(str(record.document["characters"]))
    if reader not in growing():
        raise JournalError(
            f"reading {record.id} used the reader {reader!r}, which cannot go on in a document that has grown: ask again."
            f" {', '.join(growing())} can"
        )
    if len(document) < before:
        raise JournalError(
            f"the document has {len(document):,} characters, and had {before:,} in reading {record.id}: it did not grow."
            " Read it again"
        )
    if document.digest_of(0, before) != record.document["digest"]:
        raise JournalError(
            f"the text that reading {record.id} read has changed{_where(record.document, document)}: only what is added at"
            " the end can be read on. Read the document again"
        )


def base(journal: Journal, id: str) -> Ledger:
    """What the first turns of a reading came to, of which the last has its state stored; without turns, if it was not
    extended."""
    values = journal.base(id)
    return Ledger() if values is None else Ledger.from_json(values)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Beginning:
    """The first `size` characters of a text."""

    text: Text
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self, start: int, end: int) -> str:
        return self.text.read(start, min(end, self.size))


def keep(turns: Iterable[TurnEntry], old: Chunks, new: Chunks, base: Ledger) -> int:
    """How many turns hold in the grown document, from the chunks of the old one and those of the grown.

    They are those of the base, and those of the `turns` after it up to the first that is none of the first pass, that
    showed or split the old last chunk or one that is now another, or that ended the reading before the document. The base
    takes in those of them that showed settled chunks, up to one with its state.
    """
    # Without the old last chunk, even if it ends where it did: with it, the old reading had ended.
    stable = min(old.shared(new), len(old) - 1)
    settled = len(old.settled)
    count, last, settling = base.turns, 0, list[TurnEntry]()
    for entry in turns:
        shown = [_chunk(id) for id in (entry.id, *entry.splits)]
        if entry.outcome == "enough" or not all(0 < number <= stable for number in shown):
            break
        count, last = count + 1, max(last, *shown)
        settling.append(entry)
        if entry.state is not None and last <= settled:
            for one in settling:
                base.take(one)
            settling.clear()
    return count


def _chunk(id: str) -> int:
    """The number of the chunk, from 1, that a turn of the first pass showed; 0 for other turns."""
    named = _FIRST_PASS.fullmatch(id)
    return int(named[1]) if named else 0


def _where(old: Mapping[str, Any], document: Document) -> str:
    """About where two texts part, in words; "" if it is not known."""
    checks = old.get("checks", ())
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(checks, document.checks, strict=False)))
    if not checks:
        return ""
    start = same * CHECKED
    until = f" and {start + CHECKED:,}" if same < len(checks) else " and its end"
    return f" between characters {start:,}{until} ({document.locate(start)})"
