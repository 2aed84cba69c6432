"""The values that every task produces, and the random generator that every task uses.

Offsets are characters, half open. A sample is a complete exercise: a document, a question about it, the accepted answers
and the facts in the document that the answer needs or that distract from it, each at its exact place.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from memagent.errors import TaskError
from memagent.scoring import Mode
from memagent.suite_scoring import own_score
from memagent.tasks.lazy_text import LazyText

Count: TypeAlias = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A passage at characters [start, end) of the document: it states that `key` has `value`.

    `needed`: the answer depends on it (otherwise it distracts, or is out of date). `value` is what a memory that kept the
    fact must hold; "" where that cannot be said, and then the fact is not looked for.
    """

    text: str
    start: int
    end: int
    key: str = ""
    value: str = ""
    needed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One document, one question.

    `answers` are alternatives (mode "any") or parts that are all required (mode "all"). `facts` are in document order.
    `tokens` is the length of the document as the task's tokenizer counts it; 0 if nobody counted. `meta` is what else a
    task wants to say of the sample: options it was made with, parameters of its own. JSON values. `scorer` names the scorer
    of the sample's suite (`memagent.suite_scoring.own_score`); empty for strict.
    """

    id: str
    task: str
    question: str
    document: LazyText
    answers: tuple[str, ...]
    mode: Mode = "any"
    facts: tuple[Fact, ...] = ()
    tokens: int = 0
    seed: int | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    scorer: str = ""

    @property
    def gold(self) -> str:
        """An answer that scores 1."""
        return self.answers[0] if self.mode == "any" else ", ".join(self.answers)


def generator(seed: int, task: str, index: int) -> random.Random:
    """The random numbers of one sample. The same three values give the same numbers on every machine."""
    digest = hashlib.sha256(f"{seed}\x1f{task}\x1f{index}".encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


def checked(sample: Sample) -> Sample:
    """The sample after checks: facts are at their places; by its own scorer, gold scores 1 and an empty answer 0. Raises
    TaskError."""
    for fact in sample.facts:
        if sample.document.read(fact.start, fact.end) != fact.text:
            raise TaskError(f"{sample.id}: the fact {fact.text[:60]!r} is not at characters {fact.start} to {fact.end}")
    if not sample.question.strip() or not sample.answers or not all(answer.strip() for answer in sample.answers):
        raise TaskError(f"{sample.id}: a sample needs a question and non-empty answers")
    if _own(sample, sample.gold) < 1 or _own(sample, "") != 0:
        scorer = f" by its scorer {sample.scorer}" if sample.scorer else ""
        raise TaskError(f"{sample.id}: the sample's answer {sample.gold[:60]!r} does not score 1{scorer}")
    return sample


def _own(sample: Sample, answer: str) -> float:
    try:
        return own_score(sample.scorer or "strict", answer, sample.answers, sample.mode, sample.meta)
    except ValueError as error:
        raise TaskError(f"{sample.id}: {error}") from error
