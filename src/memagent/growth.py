"""A document that has grown: which turns of its reading still hold, and where the text before the end is another one.

A cut depends only on the text before it and on a little after it, so all chunks of the old document but the last are chunks
of the grown one as well. A reader that goes chunk by chunk has shown them already, with the same memories: its reading goes
on from there, and ends as one reading of the grown document would have ended. Where a server counts otherwise because more
text follows, the reading goes on from the first chunk that is cut otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from memagent.core import Chunk, Chunks, Text, Tokenizer, chunk
from memagent.documents import Document
from memagent.documents.spool import CHECKED
from memagent.errors import JournalError
from memagent.journal import ReadingRecord, TurnEntry
from memagent.result import Ledger

# What these show of a chunk does not depend on what comes after it.
READERS = ("memory", "gated", "recall", "append", "parallel")
# The turn of a chunk of the first pass; of a piece of it, with its characters; asked again, with how often.
_FIRST_PASS = re.compile(r"(?:round-1/)?chunk-(\d+)(:\d+-\d+)?(?:~\d+)?")


def check_grown(record: ReadingRecord, document: Document) -> None:
    """Raises JournalError if a reading cannot go on in a document: for its reader, or because the text that it read is not
    the beginning of this one; says about where the two part."""
    reader, before = record.settings.get("reader"), int(str(record.document["characters"]))
    if reader not in READERS:
        raise JournalError(
            f"reading {record.id} used the reader {reader!r}, which chooses what it reads from the whole document:"
            f" ask again. {', '.join(READERS)} can go on"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What the first turns of a reading came to, and the chunks of the text that they showed.

    `settled`: the state after the last of them is stored, so that the reading can go on from there; or its turns have
    to be replayed.
    """

    ledger: Ledger
    chunks: Chunks
    settled: bool = True

    @property
    def turns(self) -> int:
        return self.ledger.turns

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        ends, tokens = [one.end for one in self.chunks], [one.tokens for one in self.chunks]
        return {**self.ledger.to_json(), "ends": ends, "tokens": tokens}

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> Base:
        """The base that `to_json` wrote; None: that of a reading without turns."""
        if values is None:
            return cls(ledger=Ledger(), chunks=Chunks())
        places = zip([0, *values["ends"]], values["ends"], values["tokens"], strict=False)
        found = (Chunk(start=start, end=end, tokens=tokens) for start, end, tokens in places)
        return cls(ledger=Ledger.from_json(values), chunks=Chunks(found))


@dataclass(frozen=True, slots=True)
class _Rest:
    """A text from a character on."""

    text: Text
    first: int

    def __len__(self) -> int:
        return len(self.text) - self.first

    def read(self, start: int, end: int) -> str:
        return self.text.read(self.first + start, self.first + end)


def chunks_from(known: Chunks, text: Text, tokenizer: Tokenizer, limit: int) -> Chunks:
    """The chunks of a text of which the first are known: only the rest is tokenized."""
    start = known[-1].end if len(known) else 0
    rest = chunk(_Rest(text, start), tokenizer, limit)
    return Chunks([*known, *(replace(one, start=start + one.start, end=start + one.end) for one in rest)])


def kept(turns: Iterable[TurnEntry], chunks: Chunks, before: int, base: Base) -> Base:
    """What holds in the grown document, of which these are the `chunks` and the first `before` characters the old one.

    It is the base, and those of the `turns` after it up to the first that is none of the first pass, that showed the old
    last chunk where it goes on now, or that ended the reading before the document.
    """
    last = next(index for index, one in enumerate(chunks) if one.end >= before)
    # Without the old last chunk, even if it ends where it did: with it, the old reading had ended.
    stable = chunks[:last]

    def holds(entry: TurnEntry) -> bool:
        named = _FIRST_PASS.fullmatch(entry.id)
        if named is None or entry.outcome == "enough" or int(named[1]) > len(stable):
            return False
        own = stable[int(named[1]) - 1]  # as it is cut now: a server may count otherwise where more text follows
        if named[2] is None and entry.spans != ((own.start, own.end),):
            return False
        return all(own.start <= start and stop <= own.end for start, stop in entry.spans)

    settled = base.settled
    for entry in takewhile(holds, turns):
        base.ledger.take(entry)
        settled = entry.state is not None
    return replace(base, chunks=Chunks(stable), settled=settled)


def _where(old: Mapping[str, Any], document: Document) -> str:
    """About where two texts part, in words; "" if it is not known."""
    checks = old.get("checks", ())
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(checks, document.checks, strict=False)))
    if not checks:
        return ""
    start = same * CHECKED
    until = f" and {start + CHECKED:,}" if same < len(checks) else " and its end"
    return f" between characters {start:,}{until} ({document.locate(start)})"
