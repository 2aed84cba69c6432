"""Retrieval: the passages of a document that match the question best, together in one prompt."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from memagent.core.chunking import MIN_CHUNK_TOKENS, Cutter, cut
from memagent.core.readers.chunkwise import GAP, Spans
from memagent.core.readers.excerpt import ExcerptReader
from memagent.core.reading import Plan
from memagent.core.spans import merged
from memagent.core.types import Ranker, Span, Text, Tokenizer
from memagent.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrieveReader(ExcerptReader):
    """The best passages in document order; all of the document, if it fits. `passages` is the k of the top k."""

    name: ClassVar[str] = "retrieve"
    summary: ClassVar[str] = "Shows the passages that match the question best (BM25) in one prompt."
    ranks: ClassVar[bool] = True

    passages: int = 8

    def __post_init__(self) -> None:
        if self.passages < 1:
            raise ConfigError(f"{self.passages} passages cannot be retrieved: give at least 1")

    def prepare(self, plan: Plan, window: int | None, overhead: int, cutter: Cutter) -> Plan:
        half_passage(plan.tokenizer, self.room(plan), self.passages)  # wrong for every document, if for any
        return super(RetrieveReader, self).prepare(plan, window, overhead, cutter)

    def chosen(self, plan: Plan, room: int, cutter: Cutter) -> Spans:
        if plan.ranker is None:
            raise ConfigError("the reader 'retrieve' needs a ranker: hand one to the plan, such as memagent.ranking.bm25")
        return retrieved(plan.text, plan.question, plan.tokenizer, plan.ranker, room, self.passages, cutter)


def retrieved(
    text: Text, question: str, tokenizer: Tokenizer, ranker: Ranker, room: int, passages: int, cutter: Cutter = cut
) -> Spans:
    """The passages of a longer text that match the question best, as many as fit `room` tokens; those that touch are one.

    Their size is such that `passages` of them fit. Each overlaps the next by half, so that whatever is shorter than half of
    one stands whole in some passage; where chosen ones overlap, there is room for more.
    """
    halves = cutter(text, tokenizer, half_passage(tokenizer, room, passages))
    spans = [Span(start=one.start, end=other.end) for one, other in pairwise(halves)]
    gap = tokenizer.count(GAP)
    chosen: set[int] = set()
    for number in ranker(text, spans, question):
        wanted = chosen | {number, number + 1}
        parts = len(list(merged(halves[one].span for one in wanted)))
        if sum(halves[one].tokens for one in wanted) + gap * (parts - 1) > room:
            break
        chosen = wanted
    return tuple(merged(halves[one].span for one in chosen))


def half_passage(tokenizer: Tokenizer, room: int, passages: int) -> int:
    """Tokens of half a passage, so that `passages` of them fit `room` tokens. Raises ConfigError if that is too little."""
    gaps = tokenizer.count(GAP) * (passages - 1)
    half = ((room - gaps) // passages - 1) // 2
    if half < MIN_CHUNK_TOKENS:
        raise ConfigError(
            f"{passages} passages do not fit {room} tokens: retrieve fewer (--passages; `passages` of reader_options)"
        )
    return half
