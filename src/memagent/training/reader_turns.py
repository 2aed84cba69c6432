"""The turns of a reading that goes right, for readers that take notes or skip: `gated` and `parallel`.

A gated reading is the paper's, with the short form wherever the memory does not change. A parallel reading goes round by
round: what a chunk adds to the memory of the round before, then the merge of all notes. Its memory has only lines with a
value, because a merge can only write what notes and memory hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from memagent.core.chunking import chunk
from memagent.core.prompts import Profile
from memagent.core.readers.notes import SEPARATOR
from memagent.core.types import Tokenizer
from memagent.scoring import SCORERS
from memagent.tasks.samples import Fact, Sample
from memagent.training.ideal import (
    Chain,
    Line,
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
from memagent.training.readings import RightTurn, right_turns

ROUNDS = 3


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
        return memory_pieces(self) if self.lines else []


def gated_turns(profile: Profile, tokenizer: Tokenizer, sample: Sample, chunk_tokens: int) -> list[RightTurn]:
    """All turns of a gated reading in which every reply is right. Nothing is noted until something is found."""
    notes, turns = first_notes(sample), list[RightTurn]()
    empty = notes
    for text, facts in _shown(tokenizer, sample, chunk_tokens):
        before, notes = notes, notes.after(facts)
        prompt = profile.render(
            "gated",
            question=sample.question,
            memory=profile.empty_memory if before == empty else memory_text(before),
            chunk=text,
            memory_tokens=0,
            nothing=profile.nothing,
            exit="",
        )
        if notes == before:
            turns.append(_nothing(profile, prompt, "wait" if before == empty else "keep"))
        else:
            turns.append(RightTurn("find", prompt, memory_pieces(notes)))
    return [*turns, _answer(profile, sample, notes, profile.empty_memory if notes == empty else memory_text(notes))]


def parallel_turns(profile: Profile, tokenizer: Tokenizer, sample: Sample, chunk_tokens: int) -> list[RightTurn]:
    """All turns of a reading in rounds in which every reply is right. All notes of a round are merged in one turn."""
    parts, notes, turns = list(_shown(tokenizer, sample, chunk_tokens)), first_notes(sample), list[RightTurn]()
    for number in range(ROUNDS):
        memory = found(notes)
        added = [(text, new(notes, facts, number == 0)) for text, facts in parts]
        for text, note in added:
            prompt = profile.render(
                "round",
                question=sample.question,
                memory=memory.text or profile.empty_memory,
                chunk=text,
                memory_tokens=0,
                nothing=profile.nothing,
            )
            if note.lines:
                turns.append(RightTurn("find", prompt, note.pieces))
            else:
                turns.append(_nothing(profile, prompt, "keep" if memory.lines else "wait"))
        written = [note for _, note in added if note.lines]
        if not written:
            break
        notes = merge(notes, [facts for _, facts in parts], number == 0)
        if memory.lines or len(written) > 1:
            prompt = profile.render(
                "merge",
                question=sample.question,
                memory=memory.text or profile.empty_memory,
                notes=SEPARATOR.join(note.text for note in written),
                memory_tokens=0,
            )
            turns.append(RightTurn("find", prompt, found(notes).pieces))
    return [*turns, _answer(profile, sample, notes, found(notes).text or profile.empty_memory)]


TURNS: Mapping[str, Callable[[Profile, Tokenizer, Sample, int], list[RightTurn]]] = {
    "memory": right_turns,
    "gated": gated_turns,
    "parallel": parallel_turns,
}


def found(notes: Notes) -> Found:
    """The lines of a memory that have a value."""
    return Found([(key, values) for key, values in notes.lines if values])


def new(notes: Notes, facts: Sequence[Fact], first: bool) -> Found:
    """What a chunk that states `facts` adds to the memory of the round before.

    After the first round a value that is known stays: that a chunk states another does not say which of them is the later.
    """
    known, lines = dict(notes.lines), list[Line]()
    for key, values in notes.after(facts).lines:
        if isinstance(notes, Slots) and not notes.many:
            fresh = values if first or not known.get(key) else ()
        else:
            fresh = tuple(value for value in values if value not in known.get(key, ()))
        if fresh:
            lines.append((key, fresh))
    return Found(lines)


def merge(notes: Notes, parts: Sequence[Sequence[Fact]], first: bool) -> Notes:
    """The memory after a round in which the parts of the document stated these facts, each part seen with `notes`."""
    if isinstance(notes, Slots):
        merged = notes
        for facts in parts:
            known = dict(notes.lines)
            merged = merged.after([fact for fact in facts if notes.many or first or not known.get(fact.key)])
        return merged
    seen = [notes.after(facts) for facts in parts]
    if isinstance(notes, Variables):
        names = dict.fromkeys([*notes.names, *(name for one in seen if isinstance(one, Variables) for name in one.names)])
        return replace(notes, names=tuple(names))
    assert isinstance(notes, Chain)
    return max((one for one in seen if isinstance(one, Chain)), key=lambda one: one.known)


def _shown(tokenizer: Tokenizer, sample: Sample, chunk_tokens: int) -> Iterator[tuple[str, list[Fact]]]:
    """The chunks of a document, and what each of them states."""
    document = str(sample.document)
    for place in chunk(sample.document, tokenizer, chunk_tokens):
        yield document[place.start : place.end], visible(sample.facts, document, place.start, place.end)


def _nothing(profile: Profile, prompt: str, what: str) -> RightTurn:
    return RightTurn("keep" if what == "keep" else "wait", prompt, [(" " + profile.nothing, "value")])


def _answer(profile: Profile, sample: Sample, notes: Notes, memory: str) -> RightTurn:
    right = SCORERS["all_required"](", ".join(notes.answer), sample.answers, sample.mode) == 1
    prompt = profile.render("answer", question=sample.question, memory=memory)
    return RightTurn("answer" if right else "lost", prompt, answer_pieces(notes))
