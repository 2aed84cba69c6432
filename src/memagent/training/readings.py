"""Samples of the catalogue's tasks, and the turns of a reading that goes right: each prompt with its right reply.

As long as every reply so far was right, the next prompt is known; so all turns of a reading can be made in advance.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from memagent.core.chunking import chunk
from memagent.core.prompts import Profile
from memagent.core.types import Tokenizer
from memagent.errors import TaskError
from memagent.scoring import SCORERS
from memagent.tasks.catalog import find
from memagent.tasks.keys import make_value
from memagent.tasks.samples import Sample
from memagent.tasks.task import Materials, Request
from memagent.tasks.wording import ValueKind
from memagent.tasks.words import Words
from memagent.training.fields import Part, Range, Share
from memagent.training.ideal import Notes, Piece, Slots, answer_pieces, first_notes, memory_pieces, visible
from memagent.training.updates import Exercise, answer_prompt, prompt_parts

_TRIES = 8
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# What a turn does: wait (nothing found yet), find (the memory changes), keep (it does not), answer, lost (an answer that
# cannot be right, because a chunk border cuts a fact).
What: TypeAlias = Literal["wait", "find", "keep", "answer", "lost"]


class TaskRecipe(Part):
    """How to draw a sample of a task. Ranges are inclusive.

    task          name in the catalogue; `options` are its options, where a list means "one of these, at random"
    tokens        length of the document
    chunk         tokens of a chunk
    reader        whose turns are trained on
    quiet         share of the turns in which nothing changes that are trained on
    false_values  share of the readings that begin with a false value in the memory, which stands until the true one is
                  read; only where a line has one value, and a new statement takes the place of an older one
    answer        share of batches that hold answers only, to documents of the shortest length; the others hold updates
    """

    renamed: ClassVar[Mapping[str, str]] = {"mistaken": "false_values"}

    task: str
    tokens: Range
    chunk: Range
    reader: Literal["memory", "gated", "parallel"] = "memory"
    quiet: Share = 1.0
    false_values: Share = 0.0
    answer: Share = 0.05
    options: dict[str, Any] = Field(default={})


@dataclass(frozen=True, slots=True)
class RightTurn:
    """A prompt and its right reply, in pieces."""

    what: What
    prompt: str
    reply: list[Piece]


def draw_sample(rng: random.Random, name: str, options: Mapping[str, Any], materials: Materials, tokens: int) -> Sample:
    """A sample of a task with a document of `tokens` tokens. An option that is a list means "one of these, at random".

    Facts that do not fit into a short document are drawn again. Raises TaskError if none of several draws fits.
    """
    task, tries = find(name), _TRIES
    while True:
        given = {name: rng.choice(value) if isinstance(value, list) else value for name, value in options.items()}
        request = Request(tokens=tokens, seed=rng.getrandbits(62), index=0)
        try:
            return task.sample(materials, request, task.options(given))
        except TaskError:
            tries -= 1
            if not tries:
                raise


def false_notes(rng: random.Random, sample: Sample, words: Words) -> Notes:
    """The notes of a reader that begins a document with a false value, in the form of the true one.

    Where notes collect values, and in chains of facts, nothing false is noted: no statement would take its place.
    """
    notes = first_notes(sample)
    if not isinstance(notes, Slots) or notes.many:
        return notes
    fact = rng.choice([fact for fact in sample.facts if fact.needed])
    kind: ValueKind = "number" if fact.value.isdigit() else "uuid" if _UUID.fullmatch(fact.value) else "word"
    return notes.after([replace(fact, value=make_value(rng, kind, words, len(fact.value)))])


def right_turns(
    profile: Profile, tokenizer: Tokenizer, sample: Sample, chunk_tokens: int, notes: Notes | None = None
) -> list[RightTurn]:
    """All turns of a reading in which every reply is right. `notes`: what the memory holds before; None: it is empty.

    Raises TrainingError for a task without a perfect reader.
    """
    document, empty = str(sample.document), first_notes(sample)
    notes = empty if notes is None else notes
    turns: list[RightTurn] = []
    for place in chunk(sample.document, tokenizer, chunk_tokens):
        first = not turns and notes == empty
        head, tail = prompt_parts(profile, Exercise(question=sample.question, notes=notes, first=first))
        before, notes = notes, notes.after(visible(sample.facts, document, place.start, place.end))
        what: What = "find" if notes != before else "keep" if any(values for _, values in notes.lines) else "wait"
        turns.append(RightTurn(what, head + document[place.start : place.end] + tail, memory_pieces(notes)))
    prompt = answer_prompt(profile, Exercise(question=sample.question, notes=notes, first=False))
    right = SCORERS["all_required"](", ".join(notes.answer), sample.answers, sample.mode) == 1
    last: What = "answer" if right else "lost"
    return [*turns, RightTurn(last, prompt, answer_pieces(notes))]
