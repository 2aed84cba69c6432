"""The baseline that looks at the beginning and the end of a document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memagent.core.chunking import Cutter, chunk
from memagent.core.readers.chunkwise import GAP, Spans
from memagent.core.readers.excerpt import TOKEN_CHARS, ExcerptReader
from memagent.core.reading import Plan
from memagent.core.types import Span, Text, Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateReader(ExcerptReader):
    """The document's first and last tokens in one prompt; all of it, if it fits."""

    name: ClassVar[str] = "truncate"
    summary: ClassVar[str] = "Shows the beginning and the end of the document in one prompt."

    def chosen(self, plan: Plan, room: int, cutter: Cutter) -> Spans:
        return head_and_tail(plan.text, plan.tokenizer, room)


def head_and_tail(text: Text, tokenizer: Tokenizer, room: int) -> Spans:
    """The first and the last half of `room` tokens of a longer text, cut where a reader would pause, if possible."""
    length = len(text)
    half = (room - tokenizer.count(GAP)) // 2
    head = next(chunk(_Head(text, half * TOKEN_CHARS), tokenizer, half)).span
    reach = half
    while True:  # characters of the tail: the fewest that hold half the tokens, found by doubling
        reach *= 2
        begin = max(head.end, length - reach)
        ends = tokenizer.ends(text.read(begin, length))
        if len(ends) > half or begin == head.end:
            break
    tail = begin + (ends[len(ends) - half - 1] if len(ends) > half else 0)
    word = text.read(tail, min(length, tail + 200))
    space = next((place for place, char in enumerate(word) if char.isspace()), 0)
    return head, Span(start=tail + space, end=length)


class _Head:
    """The first characters of a text."""

    def __init__(self, text: Text, length: int) -> None:
        self._text, self._length = text, min(length, len(text))

    def __len__(self) -> int:
        return self._length

    def read(self, start: int, end: int) -> str:
        return self._text.read(start, min(end, self._length))
