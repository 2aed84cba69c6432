"""Lazy concatenation: a document as a list of pieces of a text that many documents share.

A piece is joined only when it is read, so a hundred documents of four million tokens over one book need the memory of one
book and a list of offsets for each document.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import TypeAlias

from memagent.core.types import Span

Piece: TypeAlias = Span | str


class LazyText:
    """Spans of `base` and other strings, in order. Implements the port `memagent.core.types.Text`.

    Two lazy texts are equal if their full texts are equal.
    """

    __slots__ = ("__weakref__", "_ends", "base", "pieces")

    def __init__(self, pieces: Iterable[Piece], base: str = "") -> None:
        self.base = base
        self.pieces = tuple(piece for piece in pieces if len(piece))
        self._ends = list(accumulate(map(len, self.pieces)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def read(self, start: int, end: int) -> str:
        """Characters [start, end), with the rules of slicing for offsets past the end."""
        start, end = max(0, start), min(end, len(self))
        found = []
        index = bisect_right(self._ends, start)
        while start < end:
            piece, before = self.pieces[index], self._ends[index] - len(self.pieces[index])
            low, high = start - before, min(end - before, len(piece))
            found.append(piece[low:high] if isinstance(piece, str) else self.base[piece.start + low : piece.start + high])
            start = before + high
            index += 1
        return "".join(found)

    def __str__(self) -> str:
        """The whole text."""
        return self.read(0, len(self))

    def __repr__(self) -> str:
        return f"<LazyText of {len(self.pieces)} pieces, {len(self)} characters>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LazyText) and (self._same_pieces(other) or str(self) == str(other))

    def __hash__(self) -> int:
        return hash(str(self))

    def _same_pieces(self, other: LazyText) -> bool:
        return self.base is other.base and self.pieces == other.pieces
