"""Samples of the catalogue's tasks to train on, and what a turn of a reading is: a prompt with its right reply."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from memagent.errors import TaskError
from memagent.tasks.catalog import find
from memagent.tasks.keys import make_value
from memagent.tasks.samples import Sample
from memagent.tasks.task import Materials, Request
from memagent.tasks.wording import ValueKind
from memagent.tasks.words import Words
from memagent.training.fields import ChunkRange, FewRange, Part, Share, TokenRange, TrainedReader
from memagent.training.ideal import NOTED_TASKS, Notes, Piece, Slots, first_notes

_TRIES = 8
_COMBINATIONS = 1000  # of options that are looked at before a run
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# What a turn does: wait (nothing found yet), find (the memory changes), keep (it does not), answer, lost (an answer that
# cannot be right, because a chunk border cuts a fact).
What: TypeAlias = Literal["wait", "find", "keep", "answer", "lost"]


class TaskRecipe(Part):
    """How to draw a sample of a task. Ranges are inclusive."""

    renamed: ClassVar[Mapping[str, str]] = {"mistaken": "false_values"}

    task: str
    """A task of the catalogue (`memagent tasks`) of which it is known what to note."""
    tokens: TokenRange
    """The length of the document, in tokens."""
    chunk: ChunkRange
    """The length of a chunk, in tokens."""
    reader: TrainedReader = "memory"
    """The reader whose turns are trained on."""
    quiet: Share = 1.0
    """The share of the turns in which nothing changes that are trained on."""
    false_values: Share = 0.0
    """The share of the readings that begin with a false value in the memory, which stands until the true one is read; only
    for `memory`, where a line has one value, and a new statement takes the place of an older one."""
    empty_notes: FewRange = (0, 0)
    """The number of lines without a value among the notes that a merge of `parallel` is shown: a model that errs in one
    chunk of a hundred writes as many in a book, and the merge must leave them out."""
    answer: Share = 0.05
    """The share of batches that hold answers only, to documents of the shortest length; the others hold updates."""
    options: dict[str, Any] = Field(default={})
    """Options of the task; a list means "one of these, at random"."""

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        if self.task not in NOTED_TASKS:
            known = ", ".join(NOTED_TASKS)
            raise ValueError(f"no perfect reader is known for task {self.task!r}; there is one for {known}")
        check_options(self.task, self.options)
        return self

    @model_validator(mode="after")
    def _mistakes_are_those_of_the_reader(self) -> Self:
        if self.false_values and self.reader != "memory":
            raise ValueError(f"false_values are for the reader 'memory', not {self.reader!r}: leave them out")
        if self.empty_notes[1] and self.reader != "parallel":
            raise ValueError(f"empty_notes are for the reader 'parallel', not {self.reader!r}: leave them out")
        return self


def check_options(task: str, options: Mapping[str, Any], *, drawn: bool = True) -> None:
    """Raises TaskError for a task that is not known or needs a question file, and for options that it does not take.

    `drawn`: it is for training. An option that is a list means "one of these", and each of them is looked at; wordings that
    are kept for evaluation are refused."""
    known = find(task)
    if known.questions:
        raise TaskError(
            f"task {task!r} needs a question file, which a configuration cannot name: make a sample file with"
            " `memagent synth --split train`, and train on it by `file`"
        )
    choices = [value if drawn and isinstance(value, list) else [value] for value in options.values()]
    if empty := [name for name, values in zip(options, choices, strict=True) if not values]:
        raise TaskError(f"task {task!r}, option {empty[0]}: an empty list leaves nothing to draw: give it a value")
    for values in islice(product(*choices), _COMBINATIONS):
        known.options(dict(zip(options, values, strict=True)))
        if drawn and dict(zip(options, values, strict=True)).get("wordings") == "eval":
            raise TaskError(
                f"task {task!r}, option wordings: the wordings 'eval' are kept for evaluation, and must not be trained on:"
                " leave the option out"
            )


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

    Where notes collect values, in chains of facts, and where no answer stands in the document, nothing false is noted: no
    statement would take its place.
    """
    notes = first_notes(sample)
    needed = [fact for fact in sample.facts if fact.needed]  # none, where the document does not hold the answer
    if not isinstance(notes, Slots) or notes.many or not needed:
        return notes
    fact = rng.choice(needed)
    kind: ValueKind = "number" if fact.value.isdigit() else "uuid" if _UUID.fullmatch(fact.value) else "word"
    return notes.after([replace(fact, value=make_value(rng, kind, words, len(fact.value)))])
