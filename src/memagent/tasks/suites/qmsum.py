"""QMSum (arXiv 2104.05938): summaries of meetings, of the whole or of what a question is about."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from memagent.tasks.suites.dialogue import Dialogue
from memagent.tasks.suites.suite import Exercise, Place, Suite, SuiteRecord, whole


class Query(SuiteRecord):
    """A request and the summary that a person wrote."""

    query: str
    answer: str


class Said(SuiteRecord):
    """A turn of the meeting."""

    speaker: str
    content: str


class QmsumRecord(SuiteRecord):
    """A meeting."""

    general_query_list: list[Query] = Field(default=[])
    specific_query_list: list[Query] = Field(default=[])
    meeting_transcripts: list[Said] = Field(min_length=1)


def exercises(record: QmsumRecord, place: Place) -> Iterator[Exercise]:
    dialogue = Dialogue()
    for said in record.meeting_transcripts:
        dialogue.turn(said.speaker, said.content)
    document = whole(dialogue.text)
    for category, queries in (("general", record.general_query_list), ("specific", record.specific_query_list)):
        for number, query in enumerate(queries, 1):
            yield Exercise(
                id=f"{place.number}-{category}-{number}",
                question=query.query.strip(),
                document=document,
                answers=[query.answer.strip()],
                scorer="rouge_l",
                category=category,
                meta={"meeting": place.number, "turns": len(record.meeting_transcripts)},
            )


SUITE = Suite(
    name="qmsum",
    title="QMSum",
    file="data/ALL/jsonl/test.jsonl and the like of Yale-LILY/QMSum (GitHub)",
    scorer="rouge_l",
    official="in part: ROUGE-L of the three published ROUGE scores, without stemming",
    record=QmsumRecord,
    exercises=exercises,
    shares=True,
)
