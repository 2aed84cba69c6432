"""Verification without a model: the words of an answer are looked for in the text that the memory was written from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from memagent.core import LineOrigin
from memagent.grounding.alignment import Alignment
from memagent.grounding.claims import claims, units
from memagent.grounding.fields import Field, places
from memagent.grounding.normal import whole
from memagent.grounding.verdict import Located, Quote, Verdict, judged, on_fields, quote

_SHORTEST = 2  # characters of words that are looked for, numbers apart
_AROUND = 240  # characters of a sentence that are shown on either side of the words
_BORDER = re.compile(r"[.!?。！？][\"'”’)\]]*(?=\s|$)\s*|\n\s*\n\s*")


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


def fields_by_search(asked: Sequence[Field], origins: Iterable[LineOrigin], text: Located) -> Verdict:
    """For each field, the sentence in which its value stands, in one of the ways in which such a value is written.

    Of several sentences, it is the one that shares the most words with the field and the line that was noted there.
    """
    known = [origin for origin in origins if origin.spans]
    found = {field.pointer: one for field in asked if (one := _stated(field, known, text)) is not None}
    return on_fields(asked, found)


def _stated(field: Field, origins: Sequence[LineOrigin], text: Located) -> Quote | None:
    words, best, most = units(str(field)), None, -1
    for one in origins:
        line = len(words & units(one.line))
        for span in one.spans:
            content = text.read(span.start, span.end)
            for first, last in places(field, content):
                start, end = sentence(content, first, last)
                if (shared := line + len(words & units(content[start:end]))) > most:
                    place = Alignment(start=span.start + start, end=span.start + end, kind="exact")
                    best, most = quote(text, place, one.turn, searched=True), shared
    return best


def _find(claim: str, origins: Sequence[LineOrigin], text: Located) -> tuple[Alignment, int] | None:
    """The sentence around the words of a claim, and the turn that noted it."""
    if not claim or (len(claim) < _SHORTEST and not claim.isdigit()):
        return None
    sought = whole(claim, loose=True)
    ordered = sorted(origins, key=lambda origin: sought.search(origin.line) is None)
    for turn, span in ((origin.turn, span) for origin in ordered for span in origin.spans):
        content = text.read(span.start, span.end)
        if match := sought.search(content):
            start, end = sentence(content, match.start(), match.end())
            return Alignment(start=span.start + start, end=span.start + end, kind="exact"), turn
    return None


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
