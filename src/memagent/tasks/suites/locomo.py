"""LoCoMo (arXiv 2402.17753): questions about the long conversation of two people over many dated sessions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from memagent.core.types import Span
from memagent.errors import TaskError
from memagent.tables import finding
from memagent.tasks.suites.dialogue import Dialogue
from memagent.tasks.suites.suite import Exercise, Place, Suite, SuiteRecord, whole

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_SESSION = re.compile("session_([0-9]{1,9})")
_TURN_ID = re.compile(r"D\d+:\d+")
_WHEN = "Answer with a date or a time, by the dates of the sessions."


class Turn(SuiteRecord):
    """What one person says, perhaps with a picture, of which only the caption is used."""

    speaker: str
    dia_id: str = ""
    text: str = ""
    blip_caption: str | None = None


class Asked(SuiteRecord):
    """A question. Those of category 5 have no answer in the conversation."""

    question: str
    answer: str | int | float | None = None
    category: int = Field(ge=1, le=5)
    evidence: list[Any] = Field(default=[])


class LocomoRecord(SuiteRecord):
    """A conversation with its questions. Older files have the sessions beside the questions, not in `conversation`."""

    sample_id: str | int = ""
    conversation: dict[str, Any]
    qa: list[Asked]

    @model_validator(mode="before")
    @classmethod
    def _older(cls, values: Any) -> Any:
        if isinstance(values, dict) and "conversation" not in values and "session_1" in values:
            return {**values, "conversation": values}
        return values


_TURNS = TypeAdapter(list[Turn])


def exercises(record: LocomoRecord, place: Place) -> Iterator[Exercise]:
    dialogue, places = _dialogue(record.conversation)
    document = whole(dialogue.text)
    name = str(record.sample_id) or str(place.number)
    for number, asked in enumerate(record.qa, 1):
        absent = asked.category == 5
        if asked.answer is None and not absent:
            raise TaskError(f"qa.{number - 1}.answer: expected an answer to a question of category {asked.category}")
        answer = str(asked.answer).strip()
        yield Exercise(
            id=f"{name}-{number}",
            question=f"{asked.question.strip()} {_WHEN}" if asked.category == 2 else asked.question.strip(),
            document=document,
            answers=["No information available"] if absent else [_first(answer) if asked.category == 3 else answer],
            scorer="abstention" if absent else "locomo_parts" if asked.category == 1 else "locomo_f1",
            category=CATEGORIES[asked.category],
            facts=[] if absent else dialogue.facts(_needed(asked, places)),
            meta={"conversation": name},
        )


def _first(answer: str) -> str:
    """Of an answer with reasons or alternatives behind a semicolon, what counts."""
    return answer.split(";")[0].strip()


def _dialogue(conversation: dict[str, Any]) -> tuple[Dialogue, dict[str, Span]]:
    """The conversation, and the places of its turns by their ids."""
    dialogue, places = Dialogue(), {}
    names = {int(found.group(1)): found.group() for found in map(_SESSION.fullmatch, conversation) if found}
    if not names:
        raise TaskError("conversation: expected session_1 and so on")
    for number, name in sorted(names.items()):
        try:
            turns = _TURNS.validate_python(conversation[name])
        except ValidationError as error:
            where, said = finding(error)
            raise TaskError(f"conversation.{name}{'.' if where else ''}{where}: {said}") from error
        if turns:
            dialogue.session(number, str(conversation.get(f"{name}_date_time", "")))
        for turn in turns:
            picture = f" [shares a picture: {turn.blip_caption.strip()}]" if turn.blip_caption else ""
            places[turn.dia_id] = dialogue.turn(turn.speaker, turn.text.strip() + picture)
    return dialogue, places


def _needed(asked: Asked, places: dict[str, Span]) -> list[Span]:
    ids = set(_TURN_ID.findall(" ".join(map(str, asked.evidence))))
    return sorted((places[id] for id in ids if id in places), key=lambda span: span.start)


SUITE = Suite(
    name="locomo",
    title="LoCoMo",
    file="locomo10.json of snap-research/locomo (GitHub)",
    scorer="locomo_f1, locomo_parts; abstention for category 5",
    official="yes; more phrases count as an abstention",
    record=LocomoRecord,
    exercises=exercises,
    shares=True,
)
