"""Which parts of a document stand on the page: all of a small one; of a large one, what was quoted, where the lines of the
memory came from, and some text around them. However large the document is, it is at most LIMIT characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memagent.core import Span, Text
from memagent.core.spans import merged

LIMIT = 200_000  # characters of the document on the page
CONTEXT = 1_500  # characters on either side of a passage, if there is room
_NEAR = 300  # characters between two regions that are not worth leaving out
_WORD = 80  # characters within which a region begins or ends at white space


def regions(
    size: int, quotes: Sequence[Span], places: Sequence[Span], *, limit: int = LIMIT, context: int = CONTEXT
) -> list[Span]:
    """Spans in order, disjoint, with at most `limit` characters. Quotes go first: all of them are there if they fit.

    Without quotes or places it is the beginning of the document.
    """
    if size <= limit:
        return [Span(start=0, end=size)] if size else []
    kept = _fitting(quotes, size, limit)
    around = _widened(kept, size, limit // 2, context)
    room = limit - _total(around)
    more = _fitting(places, size, room)
    found = list(merged([*around, *_widened(more, size, room, context)]))
    return _joined(found or [Span(start=0, end=min(2 * context or 1, limit))], limit)


def placed(span: Span, shown: Iterable[Span]) -> Span | None:
    """The first part of a span that is in one of the regions."""
    for one in shown:
        if max(span.start, one.start) < min(span.end, one.end):
            return Span(start=max(span.start, one.start), end=min(span.end, one.end))
    return None


def at_words(text: Text, size: int, shown: Sequence[Span], kept: Sequence[Span]) -> list[Span]:
    """The regions of the first `size` characters, less parts of words at their ends; what is `kept` stays whole."""
    trimmed = (_trimmed(text, size, one, [inner for inner in kept if one.start <= inner.start < one.end]) for one in shown)
    return [one for one in trimmed if len(one)]


def _trimmed(text: Text, size: int, one: Span, kept: Sequence[Span]) -> Span:
    first = min([one.end, *(inner.start for inner in kept)])
    last = max([one.start, *(min(inner.end, one.end) for inner in kept)])
    start, end = one.start, one.end
    if start > 0:
        head = text.read(start, min(start + _WORD, first))
        start += next((place + 1 for place, char in enumerate(head) if char.isspace()), 0)
    if end < size:
        tail = text.read(max(end - _WORD, last, start), end)
        end -= next((place for place, char in enumerate(reversed(tail)) if char.isspace()), 0)
    return Span(start=start, end=max(start, end))


def _fitting(spans: Iterable[Span], size: int, room: int) -> list[Span]:
    """The spans that fit, in their order, cut to the document."""
    kept: list[Span] = []
    for span in spans:
        start, end = max(0, span.start), min(size, span.end)
        if start < end <= start + room:
            kept.append(Span(start=start, end=end))
            room -= end - start
    return kept


def _widened(spans: Sequence[Span], size: int, room: int, context: int) -> list[Span]:
    """The spans with text on either side, as much as `room` has for each, put together."""
    if not spans:
        return []
    around = max(0, min(context, (room - _total(spans)) // (2 * len(spans))))
    return list(merged(Span(start=max(0, one.start - around), end=min(size, one.end + around)) for one in spans))


def _joined(spans: Sequence[Span], limit: int) -> list[Span]:
    """Regions with little between them as one, while it fits."""
    room, found = limit - _total(spans), list(spans[:1])
    for one in spans[1:]:
        between = one.start - found[-1].end
        if between <= min(_NEAR, room):
            room -= between
            found[-1] = Span(start=found[-1].start, end=one.end)
        else:
            found.append(one)
    return found


def _total(spans: Iterable[Span]) -> int:
    return sum(map(len, spans))
