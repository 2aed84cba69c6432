"""Questions about passages, from files in published formats."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from memagent.errors import TaskError
from memagent.scoring import Mode
from memagent.tasks.passages import Passages
from memagent.tasks.samples import generator

# What a question file is about: single passages (SQuAD), several passages each (HotpotQA and its relatives), contracts
# with labelled clauses (CUAD), filings with pages (FinanceBench).
Form: TypeAlias = Literal["squad", "multihop", "contracts", "filings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Characters [start, end) of the text of a question's first gold passage, which the answer rests on.

    `value` is what a memory that kept it must hold, "" where that cannot be said.
    """

    start: int
    end: int
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about passages of its set, named by number.

    `gold` are those the answer needs, in the file's order, and `values`, as many, say what a memory that kept each of them
    must hold ("" where that cannot be said). `context` are those that the file gives with the question, gold ones included;
    `related` are all of the same source, the nearest distractors. `evidence` are places in the first gold
    passage, where the file knows them. `meta` is for reports: "question_split" ("dev" questions
    never enter training) and whatever else the file says.
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
    """Questions and the passages they are about. `notes` counts what was left out on loading, and why."""

    name: str
    form: Form
    questions: tuple[Question, ...]
    passages: Passages
    notes: Mapping[str, int] = field(default_factory=dict)

    def require(self, task: str, form: Form, description: str) -> None:
        """Raises TaskError if the set has another form than a task can use."""
        if self.form != form:
            raise TaskError(f"task {task!r} needs {description}, but {self.name} is of the form {self.form!r}")


def question_number(seed: int, task: str, count: int, index: int) -> int:
    """Which of `count` questions sample `index` asks: all of them in a seeded order before one comes again."""
    return _order(seed, task, count)[index % count]


@lru_cache(maxsize=8)
def _order(seed: int, task: str, count: int) -> array[int]:
    numbers = list(range(count))
    generator(seed, f"{task}/order", 0).shuffle(numbers)
    return array("L", numbers)
