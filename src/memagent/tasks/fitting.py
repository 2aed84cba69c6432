"""Places facts in a haystack and fits it to a number of tokens: never above, and at most one per cent below."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate

from memagent.core.types import Span, Tokenizer
from memagent.errors import TaskError
from memagent.tasks.haystack import Haystack
from memagent.tasks.lazy_text import LazyText, Piece
from memagent.tasks.samples import Fact

# Documents up to this many tokens are counted whole. Of longer ones only the places are counted where facts stand: the
# rest is known from the haystack, so that a long document costs nothing. This is right to a few tokens.
EXACT_TOKENS = 32_768
SHARE = 0.99  # the minimum share of the requested tokens
_AIM, _MOST = 0.997, 0.999
_AROUND = 64  # characters around a fact that are counted with it
_TRIES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A fact without a place; the fields are those of `Fact`."""

    text: str
    key: str = ""
    value: str = ""
    needed: bool = True


def plant(
    haystack: Haystack, spans: Sequence[Span], facts: Sequence[Planned], depths: Sequence[float]
) -> tuple[LazyText, list[Fact]]:
    """Inserts facts into the joined spans, at the borders nearest to the relative depths (0 start, 1 end).

    Facts of the same border stay in the order given. Returns the document and the facts in document order. Raises
    TaskError if a depth is outside [0, 1] or the two lists differ in length.
    """
    if len(facts) != len(depths) or not all(0 <= depth <= 1 for depth in depths):
        raise TaskError(f"{len(facts)} facts need the same number of depths between 0 and 1, not {list(depths)}")
    places = _places(haystack, spans, depths)
    pieces: list[Piece] = []
    planted: list[Fact] = []
    size, last, upto = 0, 0, spans[0].start  # characters written; up to which span and offset
    for (span, offset), fact in sorted(zip(places, facts, strict=True), key=lambda item: item[0]):
        for number in range(last, span):
            size += _append(pieces, Span(start=upto, end=spans[number].end))
            upto = spans[number + 1].start
        size += _append(pieces, Span(start=upto, end=offset))
        last, upto = span, offset
        lead = "" if _ends_blank(pieces, haystack.text) else haystack.joint
        begin = size + len(lead)
        planted.append(Fact(start=begin, end=begin + len(fact.text), **asdict(fact)))
        size += _append(pieces, lead + fact.text + haystack.joint)
    pieces += [Span(start=upto, end=spans[last].end), *spans[last + 1 :]]
    return LazyText(pieces, haystack.text), planted


def fit(
    haystack: Haystack,
    tokenizer: Tokenizer,
    facts: Sequence[Planned],
    depths: Sequence[float],
    *,
    tokens: int,
    start: int,
) -> tuple[LazyText, list[Fact], int]:
    """Places facts in a part of the haystack, from the border `start`, that makes a document of `tokens` tokens.

    Returns the document, its facts and its length in tokens. Raises TaskError if the facts alone are too long.
    """
    need = sum(tokenizer.count(haystack.joint + fact.text) for fact in facts)
    exact = tokens <= EXACT_TOKENS
    most = tokens if exact else int(tokens * _MOST)
    room = tokens - need - 1
    for _ in range(_TRIES):
        if room < 1:
            break
        spans, used = haystack.take(tokenizer, start, room, slack=tokens // 200)
        document, planted = plant(haystack, spans, facts, depths)
        have = tokenizer.count(str(document)) if exact else used + _added(tokenizer, document)
        if tokens * SHARE <= have <= most:
            return document, planted, have
        room += max(int(tokens * _AIM), 1) - have
    raise TaskError(
        f"cannot make a document of {tokens} tokens: its {len(facts)} facts need {need}, and some text around them"
    )


def _places(haystack: Haystack, spans: Sequence[Span], depths: Sequence[float]) -> list[tuple[int, int]]:
    """(number of the span, offset in the base text) of the borders nearest to the relative depths."""
    if not spans:
        raise TaskError("facts can only be placed in a non-empty text")
    ends = list(accumulate(map(len, spans)))
    places = []
    for depth in depths:
        offset = round(depth * ends[-1])
        number = bisect_left(ends, offset)
        span = spans[number]
        places.append((number, haystack.nearest_border(span.end + offset - ends[number], span.start, span.end)))
    return places


def _added(tokenizer: Tokenizer, document: LazyText) -> int:
    """How many tokens longer the document is than the haystack's spans in it: its strings, with the text around them."""
    pieces, base = document.pieces, document.base
    added, number = 0, 0
    while number < len(pieces):
        first = number
        while number < len(pieces) and isinstance(pieces[number], str):
            number += 1
        if number > first:
            before, after = pieces[first - 1] if first else "", pieces[number] if number < len(pieces) else ""
            left = base[max(before.start, before.end - _AROUND) : before.end] if isinstance(before, Span) else ""
            right = base[after.start : min(after.end, after.start + _AROUND)] if isinstance(after, Span) else ""
            inner = "".join(piece for piece in pieces[first:number] if isinstance(piece, str))
            added += tokenizer.count(left + inner + right) - tokenizer.count(left + right)
        number += 1
    return added


def _append(pieces: list[Piece], piece: Piece) -> int:
    if len(piece):
        pieces.append(piece)
    return len(piece)


def _ends_blank(pieces: Sequence[Piece], base: str) -> bool:
    """Whether the joined pieces end in white space, or are empty."""
    if not pieces:
        return True
    last = pieces[-1]
    return (last if isinstance(last, str) else base[last.end - 1 : last.end])[-1].isspace()
