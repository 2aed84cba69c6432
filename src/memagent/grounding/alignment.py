"""Finds a quoted passage in its source: as it is, with typesetting levelled out, or nearly so.

A model that quotes changes case, quotation marks and line breaks, leaves words out with an ellipsis, or gets a word wrong.
A passage is accepted if nearly all of it stands in the source in this order, with the same numbers. What is returned are
offsets: the quote is what the source says there, never what the model wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, TypeAlias

from rapidfuzz.distance import Indel
from rapidfuzz.fuzz import partial_ratio_alignment

from memagent.core.spans import merged
from memagent.core.types import Span, Text
from memagent.grounding.normal import NUMBER, WORD, Normal, normal, whole, wide

THRESHOLD = 88.0  # per cent of the characters of an inexact passage that agree with the source
_SHORTEST = 12  # levelled characters of a passage that is compared inexactly; shorter ones must agree
_WHOLE = 20_000  # characters of a text that is compared as a whole; in longer ones, it is rare words that are looked for
_SLACK, _RUN = 32, 4  # characters around a match that may belong to it, and of a run that shows where it ends
_LONGEST, _MOST_PIECES = 10_000, 20  # characters of a quote, and its pieces
_BLOCK = 1 << 20
_MOST_PLACES = 1000  # of one word
_ANCHORS, _ANCHOR = 6, 40  # words to look for, and the characters of each
_ELLIPSIS = re.compile(r"[\[(]?(?:…|\.{3,}|(?:\. ){2,}\.)[\])]?")
_EDGES = " '.,;:!?-–"

Kind: TypeAlias = Literal["exact", "normalized", "fuzzy"]
_RANK: dict[Kind, int] = {"fuzzy": 0, "normalized": 1, "exact": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Characters [start, end) of the source, how they were found, and the per cent of the quote that agrees with them."""

    start: int
    end: int
    kind: Kind
    score: float = 100.0


def align(
    quote: str, text: Text, spans: Iterable[Span] | None = None, *, threshold: float = THRESHOLD
) -> tuple[Alignment, ...]:
    """Where a quoted passage stands in a text: one place for each piece between ellipses, in order, or () for none.

    `spans` are the parts of the text to look in (None: all of it); a passage may run over the border of two that touch.
    `threshold` is the least score of an inexact match, in per cent. A quote of which a piece is nowhere has no place, and
    neither has one of more than 10,000 characters or 20 pieces.
    """
    parts = merged(spans) if spans is not None else (Span(start=0, end=len(text)),)
    if len(quote) > _LONGEST:
        return ()
    pieces = [piece for piece in (piece.strip() for piece in _ELLIPSIS.split(quote)) if WORD.search(piece)]
    if not 0 < len(pieces) <= _MOST_PIECES:
        return ()
    found: list[Alignment] = []
    for part in parts:
        found, after = [], part.start
        for piece in pieces:
            place = _find(piece, text, Span(start=after, end=part.end), threshold)
            if place is None:
                break
            found.append(place)
            after = place.end
        if len(found) == len(pieces):
            return tuple(found)
    return ()


def _find(piece: str, text: Text, span: Span, threshold: float) -> Alignment | None:
    """The best place of a passage in a span: the first exact one, or the first levelled one, or the most similar."""
    level = normal(piece)
    best: Alignment | None = None
    for regions in _regions(piece, text, span):
        for region in regions:
            place = _in(piece, level, text.read(region.start, region.end), threshold)
            if place is not None and (best is None or (_RANK[place.kind], place.score) > (_RANK[best.kind], best.score)):
                best = replace(place, start=region.start + place.start, end=region.start + place.end)
                if best.kind == "exact":
                    return best
        if best is not None:
            break
    return best


def _in(piece: str, level: Normal, content: str, threshold: float) -> Alignment | None:
    """The place of a passage in a text of bounded length."""
    at = _whole_words(piece, content)
    if at >= 0:
        return Alignment(start=at, end=at + len(piece), kind="exact")
    source = normal(content)
    for sought in dict.fromkeys((level.text, level.text.strip(_EDGES))):
        at = _whole_words(sought, source.text) if sought else -1
        if at >= 0:
            start, end = source.source(at, at + len(sought))
            return Alignment(start=start, end=end, kind="normalized")
    return _nearly(level.text, source, threshold)


def _nearly(sought: str, source: Normal, threshold: float) -> Alignment | None:
    """The most similar place, for a passage that is long enough and no longer than the source."""
    match = None
    if _SHORTEST <= len(sought) <= len(source.text):
        match = partial_ratio_alignment(sought, source.text, score_cutoff=threshold)
    if match is None:
        return None
    start, end = _snapped(source.text, *_ends(sought, source.text, match.dest_start, match.dest_end))
    if NUMBER.findall(sought) != NUMBER.findall(source.text[start:end]):
        return None
    begin, stop = source.source(start, end)
    return Alignment(start=begin, end=stop, kind="fuzzy", score=round(match.score, 1))


def _ends(sought: str, text: str, start: int, end: int) -> tuple[int, int]:
    """Where a passage begins and ends in the text. A match has the length of the passage, which a word that was left out or
    put in makes too long or too short at one end: what counts are the first and the last run of characters that agree."""
    low, high = max(0, start - _SLACK), min(len(text), end + _SLACK)
    equal = [
        one for one in Indel.opcodes(sought, text[low:high]) if one.tag == "equal" and one.src_end - one.src_start >= _RUN
    ]
    if not equal:
        return start, end
    first, last = equal[0], equal[-1]
    begin = low + first.dest_start - first.src_start
    return max(low, begin), min(high, low + last.dest_end + len(sought) - last.src_end)


def _whole_words(sought: str, text: str) -> int:
    """Where the words stand, not as parts of longer words; -1: nowhere."""
    match = whole(sought).search(text)
    return match.start() if match else -1


def _inside(text: str, place: int) -> bool:
    """Whether a place is within a word. Scripts that are written without spaces have no such places."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if after in ".," and before.isdigit() and text[place + 1 : place + 2].isdigit():
        return True  # within a number
    if before in ".," and after.isdigit() and text[place - 2 : place - 1].isdigit():
        return True
    return before.isalnum() and after.isalnum() and not (wide(before) or wide(after))


def _snapped(text: str, start: int, end: int) -> tuple[int, int]:
    """The nearest word borders around a match, without white space."""
    while _inside(text, start):
        start -= 1
    while _inside(text, end):
        end += 1
    while start < end and text[start] == " ":
        start += 1
    while end > start and text[end - 1] == " ":
        end -= 1
    return start, end


def _regions(piece: str, text: Text, span: Span) -> Iterator[Sequence[Span]]:
    """The parts of a span in which a passage may stand: all of a short span; in a long one, what is around each of the
    longest words of the passage, the rarest word first; if all are frequent, where its words stand in a row."""
    if len(span) <= _WHOLE:
        yield [span]
        return
    reach = 2 * len(piece) + 200
    for places in _places(_anchors(piece), text, span) or [_in_a_row(piece, text, span)]:
        yield list(merged(Span(start=max(span.start, at - reach), end=min(span.end, at + reach)) for at in places))


def _anchors(piece: str) -> list[str]:
    """The longest words of a passage; of a script without spaces, runs of four characters."""
    words = dict.fromkeys(
        part
        for word in WORD.findall(piece)
        for part in (
            [word[at : at + 4] for at in range(0, max(1, len(word) - 3), 4)] if wide(word[0]) else [word[:_ANCHOR]]
        )
    )
    return sorted(words, key=len, reverse=True)[:_ANCHORS]


def _places(words: Sequence[str], text: Text, span: Span) -> list[list[int]]:
    """Where each of the words stands, the rarest word first, without those that stand in too many places."""
    places: dict[str, list[int]] = {word.casefold(): [] for word in words}
    if not places:
        return []
    sought = re.compile("|".join(map(re.escape, sorted(places, key=len, reverse=True))), re.IGNORECASE)
    overlap = max(map(len, places))
    for start in range(span.start, span.end, _BLOCK):
        for match in sought.finditer(text.read(start, min(span.end, start + _BLOCK + overlap))):
            found = places.get(match.group().casefold())
            if found is not None and len(found) <= _MOST_PLACES and (not found or found[-1] < start + match.start()):
                found.append(start + match.start())
    return sorted((found for found in places.values() if 0 < len(found) <= _MOST_PLACES), key=len)


def _in_a_row(piece: str, text: Text, span: Span) -> list[int]:
    """The first places where the words of a passage follow each other, whatever is between them but words."""
    sought = re.compile(r"[\W_]+".join(map(re.escape, WORD.findall(piece))), re.IGNORECASE)
    blocks = range(span.start, span.end, _BLOCK)
    shown = ((start, text.read(start, min(span.end, start + _BLOCK + 2 * len(piece)))) for start in blocks)
    found = (start + match.start() for start, content in shown for match in sought.finditer(content))
    return list(islice(found, _ANCHORS))
