"""LongBench v2 (arXiv 2412.15204): multiple choice over long documents of many kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from memagent.tasks.suites.suite import Exercise, Place, Suite, SuiteRecord, whole, with_choices


class LongBenchRecord(SuiteRecord):
    """A question with four choices. `length` is short, medium or long."""

    id: str = Field(alias="_id")
    domain: str
    sub_domain: str = ""
    difficulty: str = ""
    length: str = ""
    question: str
    choice_A: str  # noqa: N815  # the file's name
    choice_B: str  # noqa: N815
    choice_C: str  # noqa: N815
    choice_D: str  # noqa: N815
    answer: Literal["A", "B", "C", "D"]
    context: str


def exercises(record: LongBenchRecord, place: Place) -> Iterator[Exercise]:
    yield Exercise(
        id=record.id,
        question=with_choices(record.question, [record.choice_A, record.choice_B, record.choice_C, record.choice_D]),
        document=whole(record.context),
        answers=[record.answer],
        scorer="choice",
        category=record.domain,
        meta={"sub_domain": record.sub_domain, "difficulty": record.difficulty, "length": record.length},
    )


SUITE = Suite(
    name="longbench-v2",
    title="LongBench v2",
    file="data.json of THUDM/LongBench-v2 (Hugging Face)",
    scorer="choice",
    official="yes; a letter alone also counts",
    record=LongBenchRecord,
    exercises=exercises,
)
