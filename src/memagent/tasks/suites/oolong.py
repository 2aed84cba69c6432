"""Oolong (arXiv 2511.02817): counts and comparisons over many short texts. Oolong-synth and Oolong-real."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import date

from memagent.errors import TaskError
from memagent.tasks.files import MOST_TOKENS
from memagent.tasks.suites.suite import Exercise, Place, Suite, SuiteRecord, whole

_DATE = re.compile(r"\[datetime\.date\((\d{1,4}), (\d{1,2}), (\d{1,2})\)\]")


class OolongRecord(SuiteRecord):
    """Synth has `answer_type` and a list of one answer, written as in Python; real has neither."""

    id: int | str
    context_window_text: str
    question: str
    answer: str | int
    answer_type: str = ""
    dataset: str = ""
    task_group: str = ""
    task: str = ""
    question_type: str = ""
    context_len: int | None = None
    context_window_id: int | str = ""


def exercises(record: OolongRecord, place: Place) -> Iterator[Exercise]:
    synth = bool(record.answer_type)
    answer = gold(str(record.answer)) if synth else str(record.answer).strip()
    length = record.context_len
    yield Exercise(
        id=str(record.id),
        question=record.question.strip(),
        document=whole(record.context_window_text),
        answers=[answer],
        scorer="oolong" if synth else "oolong_real",
        category=record.task_group or record.question_type or ("synth" if synth else "real"),
        meta={
            "answer_type": record.answer_type,
            "dataset": record.dataset,
            "kind": record.task,
            "window": record.context_window_id,
            "target": length if length and 0 < length <= MOST_TOKENS else None,
        },
    )


def gold(written: str) -> str:
    """The answer in a list that is written as Python writes it; dates become year-month-day."""
    if found := _DATE.fullmatch(written.strip()):
        try:
            return date(*map(int, found.groups())).isoformat()
        except ValueError as error:
            raise TaskError(f"answer: {written!r} is no date: {error}") from error
    try:
        items = ast.literal_eval(written.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise TaskError(f"answer: expected a list with one item, as Python writes it, not {written[:60]!r}") from error
    if not isinstance(items, list) or len(items) < 1 or not isinstance(items[0], str | int | float):
        raise TaskError(f"answer: expected a list with one text or number, not {written[:60]!r}")
    return str(items[0])


SUITE = Suite(
    name="oolong",
    title="Oolong",
    file="Parquet or JSON lines of oolongbench/oolong-synth and oolongbench/oolong-real (Hugging Face)",
    scorer="oolong, oolong_real",
    official="yes, for dates in common forms; answers without \\boxed{} also count",
    record=OolongRecord,
    exercises=exercises,
    shares=True,
)
