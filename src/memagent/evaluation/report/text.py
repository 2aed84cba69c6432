"""Text that is not ours, made fit to be looked at: compared, cut."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal, TypeAlias

from memagent.core.spans import merged
from memagent.core.types import Span, Text
from memagent.tasks.samples import Fact

_WORD = re.compile(r"\s+|[^\W_]+|.", re.DOTALL)
_WHOLE = 3000  # up to this number of characters, a chunk is shown as a whole
_AROUND = 700  # otherwise, characters shown around each needed fact
_BEGINNING = 1400  # or of its beginning, without a needed fact

Kind: TypeAlias = Literal["same", "new", "old", "fact", "gap"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text and how it is shown. A gap says how much is left out."""

    kind: Kind
    text: str


def word_diff(old: str, new: str) -> list[Piece]:
    """The changes of a text, word by word."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    pieces: list[Piece] = []
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            pieces.append(Piece("same", "".join(before[i:j])))
            continue
        if i < j:
            pieces.append(Piece("old", "".join(before[i:j])))
        if k < m:
            pieces.append(Piece("new", "".join(after[k:m])))
    return _without_shreds(pieces)


def excerpt(text: Text, span: Span, facts: Sequence[Fact]) -> list[Piece]:
    """The text of a span with its needed facts marked; of a long one, what is around them, or its beginning."""
    inside = [Span(start=max(span.start, fact.start), end=min(span.end, fact.end)) for fact in facts]
    inside = [one for one in inside if one.start < one.end]
    if len(span) <= _WHOLE:
        wanted = [span]
    elif inside:
        wanted = list(merged(_around(one, span) for one in inside))
    else:
        wanted = [Span(start=span.start, end=span.start + _BEGINNING)]
    pieces: list[Piece] = []
    done = span.start
    for part in wanted:
        pieces += _gap(part.start - done)
        pieces += _marked(text, part, inside)
        done = part.end
    return pieces + _gap(span.end - done)


def _without_shreds(pieces: list[Piece]) -> list[Piece]:
    """Lone white space between changed words belongs to the change: a rewritten sentence is one piece, not twenty."""
    joined: list[Piece] = []
    old = new = ""

    def flush() -> None:
        nonlocal old, new
        joined.extend(piece for piece in (Piece("old", old), Piece("new", new)) if piece.text)
        old = new = ""

    for place, piece in enumerate(pieces):
        between = old + new and place + 1 < len(pieces) and piece.kind == "same" and piece.text.isspace()
        if between and "\n" not in piece.text:
            old, new = old + piece.text, new + piece.text
        elif piece.kind == "same":
            flush()
            joined.append(piece)
        else:
            old, new = (old + piece.text, new) if piece.kind == "old" else (old, new + piece.text)
    flush()
    return joined


def _around(one: Span, span: Span) -> Span:
    return Span(start=max(span.start, one.start - _AROUND), end=min(span.end, one.end + _AROUND))


def _marked(text: Text, part: Span, facts: Sequence[Span]) -> Iterator[Piece]:
    place = part.start
    for fact in merged(facts):
        if part.start <= fact.start and fact.end <= part.end:
            yield Piece("same", text.read(place, fact.start))
            yield Piece("fact", text.read(fact.start, fact.end))
            place = fact.end
    yield Piece("same", text.read(place, part.end))


def _gap(characters: int) -> list[Piece]:
    return [Piece("gap", f"… {characters:,} characters …")] if characters > 0 else []
