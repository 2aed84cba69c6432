"""The regions of a document as blocks for the page: text with marks in it, borders between files and pages, and gaps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from memagent.core import Span
from memagent.documents import Document, SourceFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A part of the document that the page speaks of: a quote, or (`line`) the words of a line of the memory."""

    number: int
    span: Span
    line: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Text that is marked in one way. `anchor` is its offset if something links there; `begins` are the quotes that begin
    with it, `quotes` those that it is part of."""

    text: str
    anchor: int | None = None
    begins: tuple[int, ...] = ()
    quotes: tuple[int, ...] = ()
    lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """Where the text after it stands. `begins`: what begins there, a "file" or a "page"; "" amid either. `paged`: what a
    page of this file is called. `first`: it is the first of its region."""

    file: str
    page: int | None
    line: int | None
    paged: str
    begins: str = ""
    first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    characters: int


Block: TypeAlias = Passage | Border | Gap


def blocks(
    document: Document, size: int, regions: Iterable[Span], marks: Sequence[Mark], anchors: Iterable[int]
) -> list[Block]:
    """The regions of the first `size` characters in order, with what is left out between them.

    `anchors` are offsets that can be linked to.
    """
    made, done, targets = list[Block](), 0, sorted(set(anchors))
    for region in regions:
        made += _gap(region.start - done)
        made += _region(document, region, marks, targets[bisect_left(targets, region.start) :])
        done = region.end
    return made + _gap(size - done)


def _region(document: Document, region: Span, marks: Sequence[Mark], anchors: Sequence[int]) -> Iterator[Block]:
    text = document.read(region.start, region.end)
    borders = dict(_borders(document, region))
    here = [mark for mark in marks if mark.span.start < region.end and mark.span.end > region.start]
    linked = set(anchors[: bisect_left(anchors, region.end + 1)])
    edges = {edge for mark in here for edge in (mark.span.start, mark.span.end)}
    cuts = sorted(
        place for place in {region.start, region.end, *borders, *edges, *linked} if region.start <= place <= region.end
    )
    pieces = list[Piece]()
    for start, end in zip(cuts, [*cuts[1:], region.end], strict=True):
        if start in borders:
            yield from _passage(pieces)
            pieces = []
            yield borders[start]
        anchor = start if start in linked else None
        if start < end or anchor is not None:
            pieces.append(_piece(text[start - region.start : end - region.start], Span(start=start, end=end), here, anchor))
    yield from _passage(pieces)


def _piece(text: str, span: Span, marks: Iterable[Mark], anchor: int | None) -> Piece:
    inside = [mark for mark in marks if mark.span.start <= span.start and span.end <= mark.span.end and len(span)]
    quotes = [mark for mark in inside if not mark.line]
    return Piece(
        text=text,
        anchor=anchor,
        begins=tuple(mark.number for mark in quotes if mark.span.start == span.start),
        quotes=tuple(mark.number for mark in quotes),
        lines=tuple(mark.number for mark in inside if mark.line),
    )


def _borders(document: Document, region: Span) -> Iterator[tuple[int, Border]]:
    """The beginning of a region, and the files and pages that begin in it. Pages without text have none."""
    yield region.start, _border(document, region.start, first=True)
    for file in _within(document.files, region):
        for page in _pages(file, region):
            yield page, _border(document, page, "page", first=page == region.start)
        if region.start <= file.span.start:
            yield file.span.start, _border(document, file.span.start, "file", first=file.span.start == region.start)


def _border(document: Document, place: int, begins: str = "", *, first: bool = False) -> Border:
    where = document.locate(place)
    return Border(file=where.file, page=where.page, line=where.line, paged=where.paged, begins=begins, first=first)


def _within(files: Sequence[SourceFile], region: Span) -> Iterator[SourceFile]:
    first = bisect_left(files, region.start, key=lambda file: file.span.end)
    for file in files[first:]:
        if file.span.start >= region.end:
            return
        yield file


def _pages(file: SourceFile, region: Span) -> Iterator[int]:
    """Where the pages with text begin that begin in the region."""
    first = bisect_left(file.pages, region.start, key=lambda page: page.start)
    last = bisect_left(file.pages, region.end, key=lambda page: page.start)
    return (page.start for page in file.pages[first:last] if len(page))


def _passage(pieces: Sequence[Piece]) -> Iterator[Passage]:
    if pieces:
        yield Passage(pieces=tuple(pieces))


def _gap(characters: int) -> list[Block]:
    return [Gap(characters=characters)] if characters > 0 else []
