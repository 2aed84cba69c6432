"""LongMemEval (arXiv 2410.10813): questions about a user's many dated chats with an assistant."""

from __future__ import annotations

from collections.abc import Iterator

from memagent.errors import TaskError
from memagent.tasks.samples import Fact
from memagent.tasks.suites.dialogue import Dialogue
from memagent.tasks.suites.suite import Exercise, Place, Suite, SuiteRecord, whole


class Turn(SuiteRecord):
    """What one side says. `has_answer`: the answer needs it."""

    role: str
    content: str
    has_answer: bool | None = None


class LongMemEvalRecord(SuiteRecord):
    """A question with its chats. An id that ends in `_abs` is of a question that the chats do not answer."""

    question_id: str
    question_type: str
    question: str
    answer: str | int | float
    question_date: str = ""
    haystack_dates: list[str]
    haystack_sessions: list[list[Turn]]


def exercises(record: LongMemEvalRecord, place: Place) -> Iterator[Exercise]:
    absent = record.question_id.endswith("_abs")
    text, facts = _chats(record)
    answer = str(record.answer).strip()
    date = f"The date of this question is {record.question_date.strip()}. " if record.question_date.strip() else ""
    rubric = record.question_type == "single-session-preference"
    yield Exercise(
        id=record.question_id,
        question=date + record.question.strip(),
        document=whole(text),
        answers=["No information available", answer] if absent else [answer],
        scorer="abstention" if absent else "f1" if rubric else "contains",
        category="abstention" if absent else record.question_type,
        facts=[] if absent else facts,
        meta={"type": record.question_type, "sessions": len(record.haystack_sessions)},
    )


def _chats(record: LongMemEvalRecord) -> tuple[str, list[Fact]]:
    dates, sessions = record.haystack_dates, record.haystack_sessions
    if len(dates) != len(sessions):
        raise TaskError(f"haystack_dates: expected a date for each of the {len(sessions)} sessions, not {len(dates)}")
    dialogue = Dialogue()
    needed = []
    for number, (date, turns) in enumerate(zip(dates, sessions, strict=True), 1):
        dialogue.session(number, date)
        for turn in turns:
            span = dialogue.turn(turn.role.capitalize(), turn.content)
            needed += [span] if turn.has_answer else []
    return dialogue.text, dialogue.facts(needed)


SUITE = Suite(
    name="longmemeval",
    title="LongMemEval",
    file="longmemeval_s_cleaned.json, …_m_cleaned.json, …_oracle.json of xiaowu0162/longmemeval-cleaned (Hugging Face)",
    scorer="contains; f1 for preferences; abstention for _abs",
    official="no: not the official judge, which is a language model",
    record=LongMemEvalRecord,
    exercises=exercises,
)
