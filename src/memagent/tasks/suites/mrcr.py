"""OpenAI MRCR: the n-th of several pieces of writing with the same request, from a long chat with a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from memagent.errors import TaskError
from memagent.tasks.suites.dialogue import Dialogue
from memagent.tasks.suites.suite import Exercise, Place, Suite, SuiteRecord, whole


class Message(SuiteRecord):
    """A turn of the chat."""

    role: str
    content: str


def _decoded(prompt: Any) -> Any:
    try:
        return json.loads(prompt) if isinstance(prompt, str) else prompt
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected messages in JSON: {error}") from error


def _asks(messages: list[Message]) -> list[Message]:
    if len(messages) < 2 or messages[-1].role != "user":
        raise ValueError("expected several messages, of which the last is the user's")
    return messages


class MrcrRecord(SuiteRecord):
    """`prompt` is the chat in JSON; its last message asks. The answer begins with `random_string_to_prepend`."""

    prompt: Annotated[list[Message], BeforeValidator(_decoded), AfterValidator(_asks)]
    answer: str
    random_string_to_prepend: str = Field(min_length=1)
    n_needles: int
    desired_msg_index: int | None = None
    total_messages: int | None = None
    n_chars: int | None = None


def exercises(record: MrcrRecord, place: Place) -> Iterator[Exercise]:
    if not record.answer.startswith(record.random_string_to_prepend):
        raise TaskError(f"answer: expected it to begin with {record.random_string_to_prepend!r}")
    *before, last = record.prompt
    dialogue = Dialogue()
    for message in before:
        dialogue.turn(message.role.capitalize(), message.content, apart=True)
    yield Exercise(
        id=str(place.number),
        question=last.content.strip(),
        document=whole(dialogue.text),
        answers=[record.answer],
        scorer="mrcr",
        category=f"{record.n_needles} needles",
        meta={
            "prefix": record.random_string_to_prepend,
            "messages": record.total_messages,
            "message": record.desired_msg_index,
            "length": record.n_chars,
        },
    )


SUITE = Suite(
    name="mrcr",
    title="OpenAI MRCR",
    file="Parquet files such as 2needle/…, 4needle/… and 8needle/… of openai/mrcr (Hugging Face)",
    scorer="mrcr",
    official="yes",
    record=MrcrRecord,
    exercises=exercises,
)
