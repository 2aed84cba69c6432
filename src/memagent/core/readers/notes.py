"""Notes on parts of a document, and how many of them are merged into one memory.

Notes are merged in document order. Those that fit one prompt together make a group, each group becomes one note, and so on
until one group is left, which is merged with the memory. A group has at least two notes, which fit as the engine counts
(`check_merge`), so that a level has at most half as many notes as the one before it, rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from memagent.core.outcomes import Judgement, fit
from memagent.core.reading import Plan
from memagent.core.spans import merged
from memagent.core.types import Span, Tokenizer
from memagent.errors import ConfigError

SEPARATOR = "\n"
Group: TypeAlias = tuple[int, int]  # notes [first, last) of the level that is being merged


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What was written about `spans` of the document, at most a memory's budget of tokens."""

    text: str
    spans: tuple[Span, ...]

    def to_json(self) -> list[Any]:
        """JSON-ready values."""
        return [self.text, [[span.start, span.end] for span in self.spans]]

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> Note:
        """The note that `to_json` wrote."""
        text, spans = values
        return cls(text=text, spans=tuple(Span(start=start, end=end) for start, end in spans))


def check_merge(plan: Plan) -> None:
    """Raises ConfigError if the budget of a chunk does not hold two notes, so that merging them would not get anywhere."""
    chunk, memory = plan.budgets.chunk, plan.budgets.memory
    need = 2 * memory + _separator(plan.tokenizer)
    if need > chunk:
        raise ConfigError(
            f"the chunk budget of {chunk} tokens does not hold two notes to merge: 2 × {memory} tokens (the memory budget)"
            f" + {need - 2 * memory} = {need}: lower the memory budget or raise the chunk budget"
        )


def grouped(notes: Sequence[Note], tokenizer: Tokenizer, room: int) -> tuple[Group, ...]:
    """The notes in groups of neighbours, as many in each as fit `room` tokens, and at least two."""
    groups: list[Group] = []
    first = used = 0
    separator = _separator(tokenizer)
    for number, note in enumerate(notes):
        tokens = tokenizer.count(note.text) + separator
        if number > first + 1 and used + tokens > room + separator:
            groups.append((first, number))
            first, used = number, 0
        used += tokens
    return (*groups, (first, len(notes))) if notes else ()


def combined(notes: Sequence[Note]) -> Note:
    """Several notes as one, one after the other."""
    spans = tuple(merged(span for note in notes for span in note.spans))
    return Note(text=SEPARATOR.join(note.text for note in notes), spans=spans)


def new_lines(text: str, memory: str) -> str:
    """A note without the lines that stand in the memory already."""
    known = {line.strip() for line in memory.splitlines()}
    return "\n".join(line for line in text.splitlines() if line.strip() and line.strip() not in known)


def merged_text(plan: Plan, judged: Judgement, memory: str, notes: str) -> str:
    """What a merge comes to. Where its reply cannot be used, memory and notes follow each other as far as they fit."""
    text = judged.text or (memory if judged.outcome == "unchanged" else "")
    if text:
        return text
    both, budget = f"{memory}{SEPARATOR}{notes}".strip(), plan.budgets.memory
    return both if plan.tokenizer.count(both) <= budget else fit(both, budget, plan.tokenizer, whole_lines=True)


def most_merges(notes: int, fan_in: int) -> int:
    """Turns in which so many notes are merged at most, if every group holds only `fan_in` of them."""
    turns = 0
    while notes > fan_in:
        turns += notes // fan_in + (notes % fan_in > 1)
        notes = -(-notes // fan_in)
    return turns + (notes > 0)


def _separator(tokenizer: Tokenizer) -> int:
    return tokenizer.count(SEPARATOR)
