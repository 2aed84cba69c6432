"""Verification without a model: the words of an answer are looked for in the text that the memory was written from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from memagent.core import LineOrigin, Span
from memagent.grounding.alignment import Alignment
from memagent.grounding.claims import claims, units
from memagent.grounding.fields import Field, Passage, places
from memagent.grounding.normal import whole
from memagent.grounding.verdict import Located, Quote, Verdict, judged, quote

_SHORTEST = 2  # characters of words that are looked for, numbers apart
_MOST_PLACES = 20  # of a value in a text
_BLOCK, _OVERLAP = 1 << 20, 1 << 13  # characters that are read at once, and of words that run over their end
_AROUND = 240  # characters of a sentence that are shown on either side of the words
_BORDER = re.compile(r"[.!?][\"'”’)\]]*(?=\s|$)\s*|[。！？][\"'”’」』）)\]]*\s*|\n\s*\n\s*")


def verdict_by_search(answer: str, origins: Iterable[LineOrigin], text: Located) -> Verdict:
    """The sentences in which the answer, or each of its claims, stands word for word; case and white space are ignored.

    Lines of the memory that hold the words are followed first.
    """
    known = [origin for origin in origins if origin.spans]
    whole = answer.strip().rstrip(".")
    sought = [whole] if _find(whole, known, text) else list(claims(answer))
    found = {claim: _find(claim.rstrip("."), known, text) for claim in sought}
    quotes = [quote(text, place, turn, searched=True) for hit in found.values() if hit for place, turn in [hit]]
    return judged(sought, [claim for claim, hit in found.items() if hit is None], quotes)


def search_for_fields(asked: Sequence[Field], origins: Iterable[LineOrigin], text: Located) -> dict[str, Quote]:
    """For each field, by its pointer, the sentence in which its value stands, in one of the ways in which such a value is
    written. Of several sentences, it is the one that shares the most words with the field and a line that was noted there.
    """
    lines: dict[Span, list[tuple[frozenset[str], int]]] = {}
    for origin in origins:
        for span in origin.spans:
            lines.setdefault(span, []).append((frozenset(units(origin.line)), origin.turn))
    words = {field.pointer: units(str(field)) for field in asked}
    best: dict[str, tuple[int, Quote]] = {}
    for span, noted in lines.items():
        for start, content in _blocks(text, span):
            passage = Passage(content)
            for field in asked:
                own = words[field.pointer]
                near, turn = max(((len(own & line), turn) for line, turn in noted), key=lambda pair: pair[0])
                for first, last in islice(places(field, passage), _MOST_PLACES):
                    place = _around(text, span, start + first, start + last)
                    shared = near + len(own & units(text.read(place.start, place.end)))
                    if field.pointer not in best or shared > best[field.pointer][0]:
                        best[field.pointer] = shared, quote(text, place, turn, searched=True)
    return {pointer: one for pointer, (_, one) in best.items()}


def _find(claim: str, origins: Sequence[LineOrigin], text: Located) -> tuple[Alignment, int] | None:
    """The sentence around the words of a claim, and the turn that noted it."""
    if not claim or (len(claim) < _SHORTEST and not claim.isdigit()):
        return None
    sought = whole(claim, loose=True)
    ordered = sorted(origins, key=lambda origin: sought.search(origin.line) is None)
    for turn, span in ((origin.turn, span) for origin in ordered for span in origin.spans):
        for start, content in _blocks(text, span):
            if match := sought.search(content):
                return _around(text, span, start + match.start(), start + match.end()), turn
    return None


def _blocks(text: Located, span: Span) -> Iterator[tuple[int, str]]:
    """A span in parts that overlap, each with its first character, so that memory does not grow with the span."""
    for start in range(span.start, span.end, _BLOCK):
        yield start, text.read(start, min(span.end, start + _BLOCK + _OVERLAP))


def _around(text: Located, span: Span, first: int, last: int) -> Alignment:
    """The sentence around characters [first, last) of a span."""
    low, high = max(span.start, first - 2 * _AROUND), min(span.end, last + 2 * _AROUND)
    start, end = sentence(text.read(low, high), first - low, last - low)
    return Alignment(start=low + start, end=low + end, kind="exact")


def sentence(content: str, start: int, end: int) -> tuple[int, int]:
    """The sentence around characters [start, end), or as much of it as is near them, cut at white space."""
    low, high = max(0, start - _AROUND), min(len(content), end + _AROUND)
    borders = [match.end() for match in _BORDER.finditer(content, low, high)]
    first = max((border for border in borders if border <= start), default=None)
    last = next((border for border in borders if border >= end), None)
    if first is None:
        first = low if low == 0 else content.find(" ", low, start) + 1 or start
    if last is None:
        last = high if high == len(content) else max(content.rfind(" ", end, high), end)
    while first < start and content[first].isspace():
        first += 1
    while last > end and content[last - 1].isspace():
        last -= 1
    return first, last
