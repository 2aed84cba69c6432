"""The readers compared: five ways from a document and a question to turns of the same engine, within the same window.

    memory    the protocol: chunk by chunk, the memory is overwritten (arXiv 2507.02259)
    whole     the document in one prompt; it must fit the engine's window
    truncate  the document's head and tail, as much as a memory turn shows, in one prompt; all of it, if it fits
    retrieve  the passages that match the question best (BM25), in document order, together of that size; likewise
    refine    chunk by chunk, but replies are appended to the memory; when it is full its oldest lines go

Each becomes a plan of the one protocol, so that drivers, engines, records and resuming are the same for all. "One prompt"
is a direct answer where the model can give one. A model that was only trained to update a memory (the embedded one) is
shown the text as one chunk instead and answers from the memory it makes of it: anything else it would not understand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from memagent.core import MIN_CHUNK_TOKENS, Plan, Span, Text, Tokenizer, chunk
from memagent.errors import ConfigError, TooLongError
from memagent.evaluation.bm25 import ranked
from memagent.evaluation.records import ReaderName
from memagent.evaluation.spans import merged
from memagent.models.open import OpenModel
from memagent.settings import Settings, make_plan
from memagent.tasks.rope import Rope

GAP = "\n[…]\n"
# More characters than that for each token are no text that a tokenizer was made for.
_TOKEN_CHARS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How the baselines are run. `passages` is the k of BM25's top k. `direct`: texts are answered from directly."""

    passages: int = 8
    direct: bool = True

    def __post_init__(self) -> None:
        if self.passages < 1:
            raise ConfigError(f"{self.passages} passages cannot be retrieved: give at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A plan, and the characters of the document that its reader chose to show (None: all of it)."""

    plan: Plan
    shown: tuple[Span, ...] | None = None


def prepare(
    reader: ReaderName, text: Text, question: str, settings: Settings, opened: OpenModel, comparison: Comparison
) -> Prepared:
    """The plan by which a reader reads. Raises TooLongError, or ConfigError as `make_plan` does."""
    if reader == "memory":
        return Prepared(plan=make_plan(text, question, settings, opened))
    if reader == "refine":
        return Prepared(plan=make_plan(text, question, settings, opened, write="append"))
    one = replace(settings, direct=comparison.direct)
    room = text_room(settings, comparison)
    tokenizer = opened.engine.tokenizer
    if reader == "whole":
        if not comparison.direct and not fits(text, tokenizer, room):
            raise TooLongError(f"the document does not fit the window whole: it has more than {room} tokens")
        return Prepared(plan=make_plan(text, question, one, opened))
    if reader == "retrieve":
        half_passage(tokenizer, room, comparison.passages)  # wrong for every document, if for any
    if fits(text, tokenizer, room):
        shown, excerpt = [Span(start=0, end=len(text))], text
    else:
        if reader == "truncate":
            shown = head_and_tail(text, tokenizer, room)
        else:
            shown = retrieved(text, question, tokenizer, room, comparison.passages)
        excerpt = Rope([GAP.join(text.read(span.start, span.end) for span in shown)])
    return Prepared(plan=make_plan(excerpt, question, one, opened), shown=tuple(shown))


def text_room(settings: Settings, comparison: Comparison) -> int:
    """Tokens of the document that a one-prompt reader may show.

    Answered from directly: what a memory turn shows of chunk and memory together. As a chunk: what a chunk may hold.
    """
    budgets = settings.budgets
    return budgets.chunk + budgets.memory if comparison.direct else budgets.chunk


def fits(text: Text, tokenizer: Tokenizer, room: int) -> bool:
    """Whether the whole text has at most `room` tokens. Of a long one only the beginning is looked at."""
    return len(text) <= room * _TOKEN_CHARS and tokenizer.count(text.read(0, len(text))) <= room


def head_and_tail(text: Text, tokenizer: Tokenizer, room: int) -> list[Span]:
    """The first and the last half of `room` tokens of a longer text, cut where a reader would pause, if possible."""
    size = len(text)
    half = (room - tokenizer.count(GAP)) // 2
    head = next(chunk(Rope([text.read(0, half * _TOKEN_CHARS)]), tokenizer, half)).span
    reach = half
    while True:  # characters of the tail: the fewest that hold half the tokens, found by doubling
        reach *= 2
        begin = max(head.end, size - reach)
        ends = tokenizer.ends(text.read(begin, size))
        if len(ends) > half or begin == head.end:
            break
    tail = begin + (ends[len(ends) - half - 1] if len(ends) > half else 0)
    word = text.read(tail, min(size, tail + 200))
    space = next((place for place, char in enumerate(word) if char.isspace()), 0)
    return [head, Span(start=tail + space, end=size)]


def retrieved(text: Text, question: str, tokenizer: Tokenizer, room: int, passages: int) -> list[Span]:
    """The passages of a longer text that match the question best, as many as fit `room` tokens; those that touch are one.

    Their size is such that `passages` of them fit. Each overlaps the next by half, so that whatever is shorter than half of
    one stands whole in some passage; where chosen ones overlap, there is room for more.
    """
    halves = list(chunk(text, tokenizer, half_passage(tokenizer, room, passages)))
    spans = [Span(start=one.start, end=other.end) for one, other in pairwise(halves)]
    gap = tokenizer.count(GAP)
    chosen: set[int] = set()
    for number in ranked((text.read(span.start, span.end) for span in spans), question):
        wanted = chosen | {number, number + 1}
        parts = len(list(merged(halves[one].span for one in wanted)))
        if sum(halves[one].tokens for one in wanted) + gap * (parts - 1) > room:
            break
        chosen = wanted
    return list(merged(halves[one].span for one in chosen))


def half_passage(tokenizer: Tokenizer, room: int, passages: int) -> int:
    """Tokens of half a passage, so that `passages` of them fit `room` tokens. Raises ConfigError if that is too little."""
    gaps = tokenizer.count(GAP) * (passages - 1)
    half = ((room - gaps) // passages - 1) // 2
    if half < MIN_CHUNK_TOKENS:
        raise ConfigError(f"{passages} passages do not fit {room} tokens: retrieve fewer with --passages")
    return half
