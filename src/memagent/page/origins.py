"""The lines of the last memory as they stand there, and where in the document each of them is from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memagent.core import LineOrigin, Span
from memagent.core.spans import merged
from memagent.grounding.alignment import align
from memagent.page.source import Source

_TELLING = 8  # characters of a line that is looked for; a shorter one stands in many places
_LINE, _PAGE = 200_000, 5_000_000  # characters of the document in which one line is looked for, and all lines of a page


@dataclass(frozen=True, slots=True)
class Origin:
    """A line of the last memory as it stands there. `line` says which turn wrote it; None: that is not known.

    `span` is where in the document it is from: its own words (`found`), or the first part of what was shown.
    """

    text: str
    line: LineOrigin | None
    span: Span | None = None
    found: bool = False


def origins(memory: str, known: Iterable[LineOrigin], source: Source, limit: int) -> tuple[list[Origin], int]:
    """The first `limit` lines of a memory that are not blank, and how many more there are.

    Lines are looked for in the document until _PAGE characters of it were looked through. What they are from is not looked
    for where that would be more than _LINE characters: a merge shows the text of all its notes.
    """
    lines = [line.rstrip() for line in memory.splitlines() if line.strip()]
    by_text, traced, room = {one.line: one for one in known}, dict[str, Origin](), _PAGE
    for text in dict.fromkeys(line.strip() for line in lines[:limit]):
        line = by_text.get(text)
        spans = _inside(line, source) if line else []
        size = sum(map(len, spans))
        sought = source.document is not None and len(text) >= _TELLING and size <= min(_LINE, room)
        room -= size if sought else 0
        traced[text] = _origin(text, line, spans, source if sought else None)
    made = [traced[line.strip()] for line in lines[:limit]]
    shown = [Origin(line, one.line, one.span, one.found) for line, one in zip(lines, made, strict=False)]
    return shown, max(0, len(lines) - limit)


def _inside(line: LineOrigin, source: Source) -> list[Span]:
    """What the turn of a line showed, each part once and cut to the document."""
    return [Span(start=one.start, end=min(one.end, source.size)) for one in merged(line.spans) if one.start < source.size]


def _origin(text: str, line: LineOrigin | None, spans: list[Span], source: Source | None) -> Origin:
    """Where a line is from: the place of its words, if they stand in the document, or else what its turn showed."""
    found = align(text, source.document, spans) if source is not None and source.document is not None and spans else ()
    if found:
        return Origin(text, line, Span(start=found[0].start, end=found[-1].end), True)
    return Origin(text, line, spans[0] if spans else None)
