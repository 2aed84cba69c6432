"""Questions about passages, from files in published formats."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from memagent.scoring import Mode
from memagent.tasks.passages import Passages
from memagent.tasks.samples import generator

# squad: each question is about a single passage · multihop: about several passages (HotpotQA and similar sets) ·
# contracts: about labelled clauses (CUAD) · filings: about pages (FinanceBench)
Form: TypeAlias = Literal["squad", "multihop", "contracts", "filings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Characters [start, end) of a question's first gold passage that support the answer.

    `value` is the text that a memory with this evidence must contain; "" if it is unknown.
    """

    start: int
    end: int
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about passages of its set, which it refers to by number.

    gold      the passages that the answer needs, in the order of the file
    values    for each gold passage, the text that a memory with that passage must contain; "" if it is unknown
    context   the passages that the file gives with the question, gold ones included
    related   all passages of the same source: the most similar distractors
    evidence  places in the first gold passage, if the file marks them
    meta      for reports: "question_split" ("dev" questions never enter training), and other fields of the file
    """

    id: str
    text: str
    answers: tuple[str, ...]
    mode: Mode = "any"
    gold: tuple[int, ...]
    values: tuple[str, ...]
    context: tuple[int, ...] = ()
    related: tuple[int, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSet:
    """Questions and their passages. `notes` counts what loading left out, by reason."""

    name: str
    form: Form
    questions: tuple[Question, ...]
    passages: Passages
    notes: Mapping[str, int] = field(default_factory=dict)


def for_evaluation(meta: Mapping[str, Any]) -> bool:
    """Whether a question file marks a question as one that is not for training."""
    return not str(meta.get("question_split", "train")).lower().startswith("train")


def question_number(seed: int, task: str, count: int, index: int) -> int:
    """The question, by number, that sample `index` asks. In this seeded order no question repeats before all came."""
    return _order(seed, task, count)[index % count]


@lru_cache(maxsize=8)
def _order(seed: int, task: str, count: int) -> array[int]:
    numbers = list(range(count))
    generator(seed, f"{task}/order", 0).shuffle(numbers)
    return array("L", numbers)
