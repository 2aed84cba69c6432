"""Real documents with labelled questions: contracts (CUAD) and filings (FinanceBench), from their published files.

These documents keep their own length, so the requested number of tokens has no effect. Samples take the questions in an
order that depends on the seed, and start over after the last one. Facts are the places that the labels mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from memagent.errors import TaskError
from memagent.tasks.lazy_text import LazyText
from memagent.tasks.passages import Passages
from memagent.tasks.questions import Question, question_number
from memagent.tasks.samples import Fact, Sample, checked
from memagent.tasks.task import Materials, Request, Task


@dataclass(frozen=True, slots=True)
class CuadOptions:
    """The kind of question about a category of clauses.

    ask: "fact", a short text such as a date, a name or a law (8 categories); "presence", yes or no (33 categories; most
    contracts lack most of them, so compare with a baseline that always answers no); "clause", the exact words of any clause
    of the category, for scorers that measure overlap.
    """

    ask: Literal["fact", "presence", "clause"] = "fact"


@dataclass(frozen=True, slots=True)
class FilingOptions:
    """This task has no options."""


def contract(materials: Materials, request: Request, options: CuadOptions) -> Sample:
    """A contract and a question about a category of its clauses."""
    needs = "contracts with labels (CUAD: name, text and labels in each line)"
    given = materials.question_set("cuad", "contracts", needs)
    asked = [question for question in given.questions if question.meta["ask"] == options.ask]
    return _sample("cuad", materials, request, given.passages, asked)


def filing(materials: Materials, request: Request, options: FilingOptions) -> Sample:
    """A company's filing with all of its pages, and a question about it."""
    given = materials.question_set("financebench", "filings", "questions about filings (FinanceBench)")
    return _sample("financebench", materials, request, given.passages, given.questions)


def _sample(task: str, materials: Materials, request: Request, passages: Passages, asked: Sequence[Question]) -> Sample:
    if not asked:
        raise TaskError(f"task {task!r}: the question file has no question of this kind")
    question = asked[question_number(request.seed, task, len(asked), request.index)]
    body = passages.body(question.gold[0])
    tokens = passages.tokens(materials.tokenizer, question.gold[0])
    facts = [
        Fact(
            text=passages.text[body.start + place.start : body.start + place.end],
            start=place.start,
            end=place.end,
            key=str(question.meta.get("category", "")),
            value=place.value,
        )
        for place in question.evidence
    ]
    sample = Sample(
        id=f"{task}-{tokens}-{request.seed}-{request.index}",
        task=task,
        question=question.text,
        document=LazyText([body], passages.text),
        answers=question.answers,
        mode=question.mode,
        facts=tuple(facts),
        tokens=tokens,
        seed=request.seed,
        meta={**question.meta, "question": question.id},
    )
    return checked(sample)


TASKS: tuple[Task[CuadOptions] | Task[FilingOptions], ...] = (
    Task(
        name="cuad",
        summary="contracts: dates, parties, laws and clauses (question file in the form of CUAD)",
        make=contract,
        defaults=CuadOptions(),
        questions=True,
    ),
    Task(
        name="financebench",
        summary="filings of companies, all pages (question file of FinanceBench, documents as passages)",
        make=filing,
        defaults=FilingOptions(),
        questions=True,
    ),
)
