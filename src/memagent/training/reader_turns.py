"""The turns of a reading that goes right: prompts and right replies of the readers `memory`, `gated` and `parallel`.

As long as every reply so far was right, the next prompt is known; so all turns of a reading can be made in advance. A gated
reading is the paper's, with the short form wherever the memory does not change. A parallel reading goes round by
round: what a chunk adds to the memory of the round before, then the merge of all notes. Its memory has only lines with a
value, because a merge can only write what notes and memory hold.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from memagent.core.chunking import chunk
from memagent.core.prompts import Profile, Template
from memagent.core.readers.notes import SEPARATOR
from memagent.core.types import Tokenizer
from memagent.scoring import SCORERS
from memagent.tasks.samples import Fact, Sample
from memagent.training.fields import FewRange
from memagent.training.ideal import (
    Chain,
    Line,
    Lines,
    Notes,
    Piece,
    Slots,
    Variables,
    answer_pieces,
    first_notes,
    memory_pieces,
    memory_text,
    visible,
)
from memagent.training.readings import RightTurn, What
from memagent.training.updates import Exercise

ROUNDS = 3
_MEMORY_TOKENS = 128  # what a wording is told of the memory's budget


@dataclass(frozen=True, slots=True)
class Found:
    """Lines of a memory or a note, each with a value."""

    lines: Sequence[Line]

    @property
    def text(self) -> str:
        """The memory or note as it is written; "" without a line."""
        return memory_text(self)

    @property
    def pieces(self) -> list[Piece]:
        return memory_pieces(self)


_EMPTY = Found(())


def memory_turn(profile: Profile, before: Exercise, text: str, facts: Sequence[Fact]) -> RightTurn:
    """A turn of the paper's reading: the whole memory, whether it changes or not."""
    after, prompt = before.notes.after(facts), _prompt(profile, "update", before.question, _memory(before), text)
    what: What = "find" if after != before.notes else "keep" if found(before.notes).lines else "wait"
    return RightTurn(what, prompt, memory_pieces(after))


def gated_turn(profile: Profile, before: Exercise, text: str, facts: Sequence[Fact]) -> RightTurn:
    """A turn of a gated reading: the memory, or the short form where it does not change."""
    after, prompt = before.notes.after(facts), _prompt(profile, "gated", before.question, _memory(before), text)
    if after == before.notes:
        return RightTurn("wait" if before.first else "keep", prompt, _nothing(profile))
    return RightTurn("find", prompt, memory_pieces(after))


def note_turn(profile: Profile, before: Exercise, text: str, facts: Sequence[Fact]) -> RightTurn:
    """A turn of a round: what the chunk adds to the memory of the round before, or the short form."""
    memory, note = found(before.notes), new(before, facts)
    prompt = _prompt(profile, "round", before.question, memory, text)
    if not note.lines:
        return RightTurn("keep" if memory.lines else "wait", prompt, _nothing(profile))
    return RightTurn("find", prompt, note.pieces)


def answer_prompt(profile: Profile, before: Exercise) -> str:
    """The prompt that asks for the answer, where the memory is that of `memory` or `gated`."""
    return _prompt(profile, "answer", before.question, _memory(before))


def memory_turns(
    profile: Profile, tokenizer: Tokenizer, sample: Sample, chunk_tokens: int, notes: Notes | None = None
) -> list[RightTurn]:
    """All turns of the paper's reading in which every reply is right. `notes`: what the memory holds before; None: it is
    empty. Raises TrainingError for a task without a perfect reader."""
    return _in_order(memory_turn, profile, tokenizer, sample, chunk_tokens, first_notes(sample) if notes is None else notes)


def gated_turns(profile: Profile, tokenizer: Tokenizer, sample: Sample, chunk_tokens: int) -> list[RightTurn]:
    """All turns of a gated reading in which every reply is right. Nothing is noted until something is found."""
    return _in_order(gated_turn, profile, tokenizer, sample, chunk_tokens, first_notes(sample))


def parallel_turns(
    profile: Profile, tokenizer: Tokenizer, sample: Sample, chunk_tokens: int, mistakes: Mistakes | None = None
) -> list[RightTurn]:
    """All turns of a reading in rounds in which every reply is right. All notes of a round are merged in one turn, among
    what `mistakes` adds to them."""
    parts, turns = list(_shown(tokenizer, sample, chunk_tokens)), list[RightTurn]()
    at = Exercise(question=sample.question, notes=first_notes(sample), first=True)
    for _ in range(ROUNDS):
        turns += [note_turn(profile, at, text, facts) for text, facts in parts]
        memory, written = found(at.notes), [note for _, facts in parts if (note := new(at, facts)).lines]
        ends, notes = not written, merge(at, [facts for _, facts in parts])
        if mistakes:
            written = mistakes(at.notes, written)
        if written and (memory.lines or len(written) > 1):
            turns.append(_merge_turn(profile, sample.question, memory, written, found(notes)))
        if mistakes and at.first and (empty := mistakes(at.notes, [])):  # a group of notes on its way to the memory
            turns.append(_merge_turn(profile, sample.question, _EMPTY, empty, unknown(at.notes)))
        if ends:
            break
        at = Exercise(question=sample.question, notes=notes, first=False)
    return [*turns, _answer(sample, at.notes, _prompt(profile, "answer", sample.question, found(at.notes)))]


@dataclass(frozen=True, slots=True)
class Mistakes:
    """Adds lines without a value to the notes of a round: some to right notes, and the rest as notes of their own."""

    rng: random.Random
    lines: FewRange

    def __call__(self, notes: Notes, written: Sequence[Found]) -> list[Found]:
        """The right notes in their order, with notes that say nothing between them."""
        keys = [key for key, _ in notes.lines]
        count = self.rng.randint(*self.lines) // len(keys)
        if not count:
            return list(written)
        if isinstance(notes, Slots) and self.rng.random() < 0.5:
            written = [self._filled(keys, note) for note in written]
        for _ in range(count):
            empty = Found([(key, ()) for key in keys[: self.rng.randint(1, len(keys))]])
            place = self.rng.randint(0, len(written))
            written = [*written[:place], empty, *written[place:]]
        return list(written)

    def _filled(self, keys: Sequence[str], note: Found) -> Found:
        """A note in the form of a memory: a line for each key up to the last one that it tells, or for all keys."""
        known = dict(note.lines)
        last = max(keys.index(key) for key in known)
        return Found([(key, known.get(key, ())) for key in keys[: self.rng.choice((last + 1, len(keys)))]])


Turn: TypeAlias = Callable[[Profile, Exercise, str, Sequence[Fact]], RightTurn]
TURN: Mapping[str, Turn] = {
    "memory": memory_turn,
    "gated": gated_turn,
    "parallel": note_turn,
}
TURNS: Mapping[str, Callable[[Profile, Tokenizer, Sample, int], list[RightTurn]]] = {
    "memory": memory_turns,
    "gated": gated_turns,
    "parallel": parallel_turns,
}


def found(notes: Notes) -> Found:
    """The lines of a memory that have a value."""
    return Found([(key, values) for key, values in notes.lines if values])


def unknown(notes: Notes) -> Found:
    """A line without a value for each key."""
    return Found([(key, ()) for key, _ in notes.lines])


def new(before: Exercise, facts: Sequence[Fact]) -> Found:
    """What a chunk that states `facts` adds to the memory of the round before.

    In the first round, variables whose value the chunk does not tell are noted too, and resolved when notes are merged.
    After it a value that is known stays: that a chunk states another does not say which of them is the later.
    """
    notes, first = before.notes, before.first
    if isinstance(notes, Variables) and first:
        return assigned(notes, facts)
    known, lines = dict(notes.lines), list[Line]()
    for key, values in notes.after(facts).lines:
        if isinstance(notes, Slots) and not notes.many:
            fresh = values if first or not known.get(key) else ()
        else:
            fresh = tuple(value for value in values if value not in known.get(key, ()))
        if fresh:
            lines.append((key, fresh))
    return Found(lines)


def merge(before: Exercise, parts: Sequence[Sequence[Fact]]) -> Notes:
    """The memory after a round in which the parts of the document stated these facts, each part seen with `before`."""
    notes, first = before.notes, before.first
    if isinstance(notes, Slots):
        merged = notes
        for facts in parts:
            known = dict(notes.lines)
            merged = merged.after([fact for fact in facts if notes.many or first or not known.get(fact.key)])
        return merged
    if isinstance(notes, Variables) and first:
        return notes.after([fact for facts in parts for fact in facts])
    seen = [notes.after(facts) for facts in parts]
    if isinstance(notes, Variables):
        names = dict.fromkeys([*notes.names, *(name for one in seen if isinstance(one, Variables) for name in one.names)])
        return replace(notes, names=tuple(names))
    assert isinstance(notes, Chain)
    return max((one for one in seen if isinstance(one, Chain)), key=lambda one: one.known)


def assigned(notes: Variables, facts: Sequence[Fact]) -> Found:
    """The assignments of a chunk, in document order: a line for the value that is asked for, and one for each variable of
    which the chunk does not tell the value. Each lists the variables that have it."""
    groups: dict[str, list[str]] = {}
    for fact in facts:
        root = next((root for root, names in groups.items() if fact.key in (root, *names)), fact.key)
        groups.setdefault(root, []).append(fact.value)
    return Found([(root, tuple(names)) for root, names in groups.items() if root == notes.value or not root.isdigit()])


def _shown(tokenizer: Tokenizer, sample: Sample, chunk_tokens: int) -> Iterator[tuple[str, list[Fact]]]:
    """The chunks of a document, and what each of them states."""
    document = str(sample.document)
    for place in chunk(sample.document, tokenizer, chunk_tokens):
        yield document[place.start : place.end], visible(sample.facts, document, place.start, place.end)


def _in_order(
    turn: Turn, profile: Profile, tokenizer: Tokenizer, sample: Sample, chunk_tokens: int, notes: Notes
) -> list[RightTurn]:
    """All turns of a reading chunk by chunk, and its answer."""
    at, turns = Exercise(question=sample.question, notes=notes, first=notes == first_notes(sample)), list[RightTurn]()
    for text, facts in _shown(tokenizer, sample, chunk_tokens):
        turns.append(turn(profile, at, text, facts))
        wrote = turns[-1].reply != _nothing(profile)
        at = Exercise(question=sample.question, notes=at.notes.after(facts), first=at.first and not wrote)
    return [*turns, _answer(sample, at.notes, answer_prompt(profile, at))]


def _memory(before: Exercise) -> Lines:
    return _EMPTY if before.first else before.notes


def _prompt(profile: Profile, template: Template, question: str, memory: Lines, text: str = "", notes: str = "") -> str:
    return profile.render(
        template,
        question=question,
        memory=memory_text(memory) or profile.empty_memory,
        chunk=text,
        notes=notes,
        memory_tokens=_MEMORY_TOKENS,
        exit="",
    )


def _merge_turn(profile: Profile, question: str, memory: Found, notes: Sequence[Found], merged: Found) -> RightTurn:
    prompt = _prompt(profile, "merge", question, memory, notes=SEPARATOR.join(note.text for note in notes))
    return RightTurn("find", prompt, merged.pieces)


def _nothing(profile: Profile) -> list[Piece]:
    return [(" " + profile.nothing, "value")]


def _answer(sample: Sample, notes: Notes, prompt: str) -> RightTurn:
    right = SCORERS["all_required"](", ".join(notes.answer), sample.answers, sample.mode) == 1
    return RightTurn("answer" if right else "lost", prompt, answer_pieces(notes))
