"""Spans of a document put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memagent.core.types import Span


def merged(spans: Iterable[Span]) -> Iterator[Span]:
    """The spans in order, those that touch or overlap each other as one."""
    last: Span | None = None
    for span in sorted(spans, key=lambda one: one.start):
        if last is None or span.start > last.end:
            if last is not None:
                yield last
            last = span
        else:
            last = Span(start=last.start, end=max(last.end, span.end))
    if last is not None:
        yield last
