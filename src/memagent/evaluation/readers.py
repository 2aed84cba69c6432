"""The readers compared: five ways from a document and a question to turns of the same engine, within the same window.

    memory    the protocol: chunk by chunk, the memory is overwritten (arXiv 2507.02259)
    whole     the document in one prompt; it must fit the engine's window
    truncate  the document's head and tail, as much as a memory turn shows, in one prompt
    retrieve  the passages that match the question best (BM25), in document order, together of that size
    refine    chunk by chunk, but replies are appended to the memory; when it is full its oldest lines go

Each becomes a plan of the one protocol, so that drivers, engines, records and resuming are the same for all. "One prompt"
is a direct answer where the model can give one. A model that was only trained to update a memory (the embedded one) is
shown the text as one chunk instead and answers from the memory it makes of it: anything else it would not understand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

from memagent.core import Plan, Span, Text, Tokenizer, chunk
from memagent.errors import ConfigError, TooLongError
from memagent.evaluation.bm25 import best_passages
from memagent.evaluation.records import ReaderName
from memagent.models.open import OpenModel
from memagent.settings import Settings, make_plan
from memagent.tasks.rope import Rope

GAP = "\n[…]\n"
_PASSAGE_LEAST = 16


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
        if not comparison.direct and len(list(islice(chunk(text, tokenizer, room), 2))) > 1:
            raise TooLongError(f"the document does not fit the window whole: it has more than {room} tokens")
        return Prepared(plan=make_plan(text, question, one, opened))
    if reader == "truncate":
        shown = head_and_tail(text, tokenizer, room)
    else:
        shown = retrieved(text, question, tokenizer, room, comparison.passages)
    excerpt = Rope([GAP.join(text.read(span.start, span.end).strip() for span in shown)])
    return Prepared(plan=make_plan(excerpt, question, one, opened), shown=tuple(shown))


def text_room(settings: Settings, comparison: Comparison) -> int:
    """Tokens of the document that a one-prompt reader may show: what a memory turn shows of chunk and memory."""
    budgets = settings.budgets
    return budgets.chunk + budgets.memory if comparison.direct else budgets.chunk


def head_and_tail(text: Text, tokenizer: Tokenizer, room: int) -> list[Span]:
    """The first and the last half of `room` tokens; everything if it fits. Cut where a reader would pause, if possible."""
    size = len(text)
    start = list(islice(chunk(text, tokenizer, room), 2))
    if len(start) < 2:
        return [Span(start=0, end=size)]
    half = (room - tokenizer.count(GAP)) // 2
    head = next(chunk(text, tokenizer, half)).span
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
    """The `passages` passages that match the question best, of equal size so that together they fit `room` tokens."""
    gaps = tokenizer.count(GAP) * (passages - 1)
    size = (room - gaps) // passages
    if size < _PASSAGE_LEAST:
        raise ConfigError(f"{passages} passages do not fit {room} tokens: retrieve fewer with --passages")
    pieces = list(chunk(text, tokenizer, size))
    chosen = best_passages((text.read(piece.start, piece.end) for piece in pieces), question, passages)
    return [pieces[number].span for number in chosen]
