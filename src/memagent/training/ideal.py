"""What a perfect reader of a sample would write: the memory after each chunk, and the answer.

A memory is lines "- key: value", with "not yet" where nothing was found. Lines start with "- " so that a key is always
preceded by a space and is cut into the same tokens as in running text. Three kinds of notes, one for each family of tasks:

    Slots      needles, updates: a line for each key asked for; a new statement replaces the value, or adds to it
    Variables  variable tracking: one line, the names that are known to have the value
    Chain      multi-hop: a line for each step; the next one names what was found by the one before
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from memagent.errors import TrainingError
from memagent.tasks import facts, multihop, needle, tracking, updates
from memagent.tasks.samples import Fact, Sample

NOT_YET = "not yet"  # in a memory, and in an answer
Piece: TypeAlias = tuple[str, str]  # text, and which of rows.KINDS it is
Line: TypeAlias = tuple[str, tuple[str, ...]]  # a key and its values


class Lines(Protocol):
    """What can be written as a memory."""

    @property
    def lines(self) -> Sequence[Line]: ...


class Notes(Lines, Protocol):
    """A state of a perfect reader's memory."""

    def after(self, facts: Sequence[Fact]) -> Notes:
        """The notes after a chunk that states `facts`, in document order."""
        ...

    @property
    def answer(self) -> Sequence[str]:
        """What is answered from these notes, item by item."""
        ...


@dataclass(frozen=True, slots=True)
class Slots:
    """A line for each key that is asked for. `many`: values are collected; otherwise the last statement counts."""

    lines: tuple[Line, ...]
    many: bool = False

    @classmethod
    def of(cls, sample: Sample) -> Slots:
        needed = [fact.key for fact in sample.facts if fact.needed]
        keys = sorted(set(needed), key=sample.question.index)
        return cls(tuple((key, ()) for key in keys), many=len(needed) > len(keys))

    def after(self, facts: Sequence[Fact]) -> Slots:
        values = dict(self.lines)
        for fact in facts:
            if fact.key in values and (not self.many or fact.value not in values[fact.key]):
                values[fact.key] = (*values[fact.key], fact.value) if self.many else (fact.value,)
        return replace(self, lines=tuple(values.items()))

    @property
    def answer(self) -> list[str]:
        return [value for _, values in self.lines for value in values or (NOT_YET,)]


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables known to have `value`, in the order in which they were found."""

    value: str
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, sample: Sample) -> Variables:
        return cls(next(fact.key for fact in sample.facts if fact.needed))

    def after(self, facts: Sequence[Fact]) -> Variables:
        names = self.names
        for fact in facts:
            if fact.key in (self.value, *names) and fact.value not in names:
                names = (*names, fact.value)
        return replace(self, names=names)

    @property
    def lines(self) -> list[Line]:
        return [(self.value, self.names)]

    @property
    def answer(self) -> list[str]:
        return list(self.names) or [NOT_YET]


@dataclass(frozen=True, slots=True)
class Chain:
    """The steps from what a question names to its answer, as (key, value), and how many of them are known."""

    steps: tuple[tuple[str, str], ...]
    known: int = 0

    @classmethod
    def of(cls, sample: Sample) -> Chain:
        keys = {fact.value: fact.key for fact in sample.facts if fact.needed}
        return cls(tuple((keys[value], value) for value in sample.meta["chain"][1:]))

    def after(self, facts: Sequence[Fact]) -> Chain:
        stated = {(fact.key, fact.value) for fact in facts}
        known = self.known
        while known < len(self.steps) and self.steps[known] in stated:
            known += 1
        return replace(self, known=known)

    @property
    def lines(self) -> list[Line]:
        lines: list[Line] = [(key, (value,)) for key, value in self.steps[: self.known]]
        return lines if self.known == len(self.steps) else [*lines, (self.steps[self.known][0], ())]

    @property
    def answer(self) -> list[str]:
        return [self.steps[-1][1] if self.known == len(self.steps) else NOT_YET]


def _named(sample: Sample) -> Slots:
    """A line for each fact that natural questions ask for, whether the document holds it or not. A key names the attribute
    in the one form that all wordings of its question have in common: so the model learns apart what is asked for, and
    which sentence tells it."""
    return Slots(tuple((key, ()) for key in sample.meta["keys"]))


_KINDS: dict[str, Callable[[Sample], Notes]] = {
    **{task.name: Slots.of for task in needle.TASKS},
    **{task.name: Slots.of for task in updates.TASKS},
    **{task.name: _named for task in facts.TASKS},
    **{task.name: Variables.of for task in tracking.TASKS},
    **{task.name: Chain.of for task in multihop.TASKS},
}


NOTED_TASKS = tuple(_KINDS)  # of which it is known what a perfect reader notes


def first_notes(sample: Sample) -> Notes:
    """The notes before anything was read. Raises TrainingError for a task of which it is not known what to note."""
    if sample.task not in _KINDS:
        raise TrainingError(f"no perfect reader is known for task {sample.task!r}; there is one for {', '.join(_KINDS)}")
    return _KINDS[sample.task](sample)


def memory_text(notes: Lines) -> str:
    """The memory: one line per key, in order."""
    return "".join(text for text, _ in memory_pieces(notes))


def memory_pieces(notes: Lines) -> list[Piece]:
    """The memory as pieces (text, kind). The space before a value is the decision whether there is one."""
    pieces: list[Piece] = []
    for number, (key, values) in enumerate(notes.lines):
        pieces += [("\n-" if number else "-", "format"), (" " + key, "key"), (":", "format")]
        pieces += _listed(values or (NOT_YET,))
    return pieces


def answer_pieces(notes: Notes) -> list[Piece]:
    """The answer as pieces."""
    return _listed(notes.answer)


def _listed(values: Sequence[str]) -> list[Piece]:
    pieces: list[Piece] = []
    for number, value in enumerate(values):
        pieces += [(",", "format")] if number else []
        pieces.append((" " + value, "value"))
    return pieces


def visible(facts: Sequence[Fact], text: str, start: int, end: int) -> list[Fact]:
    """The facts of which text[start:end] shows the whole sentence up to the later of key and value.

    Of a sentence that does not name its key word for word, all must be there.
    """
    seen = []
    for fact in facts:
        key, value = fact.text.find(fact.key), fact.text.find(fact.value)
        first, last = fact.start, fact.end
        if key >= 0 and value >= 0:
            first = fact.start + min(key, value)
            last = fact.start + max(key + len(fact.key), value + len(fact.value))
        if start <= first and last <= end and text[fact.start : fact.end] == fact.text:
            seen.append(fact)
    return seen
