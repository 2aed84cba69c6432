"""Samples of the catalogue's tasks, and the turns of a reading that goes right: each prompt with its right reply.

As long as every reply so far was right, the next prompt is known; so all turns of a reading can be made in advance.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import Field

from memagent.core.chunking import chunk
from memagent.core.prompts import Profile
from memagent.core.types import Tokenizer
from memagent.errors import TaskError
from memagent.scoring import SCORERS
from memagent.tasks.catalog import find
from memagent.tasks.samples import Sample
from memagent.tasks.task import Materials, Request
from memagent.training.fields import Part, Range, Share
from memagent.training.ideal import Piece, answer_pieces, first_notes, memory_pieces, visible
from memagent.training.updates import Exercise, answer_prompt, prompt_parts

_TRIES = 8
# What a turn does: wait (nothing found yet), find (the memory changes), keep (it does not), answer, lost (an answer that
# cannot be right, because a chunk border cuts a fact).
What: TypeAlias = Literal["wait", "find", "keep", "answer", "lost"]


class TaskRecipe(Part):
    """How to draw a sample of a task. Ranges are inclusive.

    task     name in the catalogue; `options` are its options, where a list means "one of these, at random"
    tokens   length of the document
    chunk    tokens of a chunk
    quiet    share of the turns in which nothing changes that are trained on
    answer   share of batches that hold answers only, to documents of the shortest length; the others hold updates only
    """

    task: str
    tokens: Range
    chunk: Range
    quiet: Share = 1.0
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


def right_turns(profile: Profile, tokenizer: Tokenizer, sample: Sample, chunk_tokens: int) -> list[RightTurn]:
    """All turns of a reading in which every reply is right. Raises TrainingError for a task nobody knows how to read."""
    document, notes = str(sample.document), first_notes(sample)
    turns: list[RightTurn] = []
    for place in chunk(sample.document, tokenizer, chunk_tokens):
        head, tail = prompt_parts(profile, Exercise(question=sample.question, notes=notes, first=not turns))
        before, notes = notes, notes.after(visible(sample.facts, document, place.start, place.end))
        what: What = "find" if notes != before else "keep" if any(values for _, values in notes.lines) else "wait"
        turns.append(RightTurn(what, head + document[place.start : place.end] + tail, memory_pieces(notes)))
    prompt = answer_prompt(profile, Exercise(question=sample.question, notes=notes, first=False))
    right = SCORERS["all_required"](", ".join(notes.answer), sample.answers, sample.mode) == 1
    last: What = "answer" if right else "lost"
    return [*turns, RightTurn(last, prompt, answer_pieces(notes))]
