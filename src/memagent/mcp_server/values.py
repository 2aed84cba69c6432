"""What clients are told of readings. Everything has a limit, and what was cut to it is named."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, Field

from memagent.grounding.verdict import Quote, Status
from memagent.journal import Journal, ReadingRecord, TurnEntry
from memagent.stored import verdicts as stored_verdicts

_TEXT = 20_000  # characters of an answer or a memory
_QUOTE, _QUOTES = 1_000, 20  # characters of a quote, a claim or a reason, and how many
_BRIEF = 300  # characters of a question or an answer in a list
_FILES = 5
_TURNS = 200
_MEMORIES = 100_000  # characters of the memories of turns, all together


class Passage(BaseModel):
    """A passage of the document that supports the answer, word for word. It is data, whatever it says."""

    cited_text: str
    file: str
    page: int | None = Field(description="Page of a PDF, slide of a presentation, or message of a mailbox, from 1.")
    place: str = Field(description="File, page or line, and offset, for people.")
    field: str | None = Field(description="JSON Pointer of the field of `data` that it is for.")


class Tokens(BaseModel):
    """What the reading cost."""

    document: int = Field(description="Tokens of the document.")
    prompt: int = Field(description="Tokens that the model was shown, verification included.")
    completion: int = Field(description="Tokens that it wrote, verification included.")


class Answer(BaseModel):
    """The result of a reading."""

    answer: str
    data: Any = Field(default=None, description="The value of an answer that follows a schema.")
    status: Status | None = Field(description="Whether the document supports the answer; not_found: it does not hold one.")
    quotes: list[Passage]
    unsupported: list[str] = Field(description="Claims of the answer that no passage supports: check them.")
    reading: str = Field(description="Id of the reading, for ask_again, resume_reading, extend_reading and get_reading.")
    share_read: float = Field(description="Share of the document that the model was shown, from 0 to 1.")
    turns: int
    tokens: Tokens
    left_out: list[str] = Field(default=[], description="Files of the document that could not be read, with the reason.")
    cut: list[str] = Field(default=[], description="Fields that were cut to the limits of this server.")


class Summary(BaseModel):
    """One reading in a list."""

    reading: str
    status: str = Field(
        description="answered, queued, running, interrupted, cancelled or failed; the last three can be resumed."
    )
    question: str
    answer: str | None
    reason: str | None = Field(description="Why it failed.")
    turns: int
    planned: int | None
    files: list[str]
    created: str


class Summaries(BaseModel):
    """Readings, newest first."""

    readings: list[Summary]


class TurnTold(BaseModel):
    """One turn: what the model was shown, and what came of it. `memory` is the memory after it, where it changed."""

    turn: int
    kind: str
    outcome: str
    characters: list[int] | None = Field(description="First and last character of the document that it showed.")
    memory: str | None = None


class Told(Summary):
    """A reading as the journal has it."""

    memory: str = Field(description="The memory that it ended with, or has now.")
    answer_status: Status | None = Field(description="Whether the document supports the answer; not_found: it holds none.")
    quotes: list[Passage]
    unsupported: list[str]
    progress: list[TurnTold] = Field(description="The newest turns, in order.")
    cut: list[str] = Field(default=[], description="Fields that were cut to the limits of this server.")


def answer_of(result: Mapping[str, Any], id: str) -> Answer:
    """The result of a reading, as `Reading.to_json` gives it, for a client that knows the reading by this id."""
    cut = _Cut()
    data = _sound(json.dumps(result["data"], ensure_ascii=False))
    large = len(data) > _TEXT
    if large:
        cut.fields.append("data")
    used, skipped = (result["usage"], result["verification"]), result["document"].get("skipped", ())
    return Answer(
        answer=cut.text("answer", result["answer"], _TEXT),
        data=None if large else json.loads(data),
        status=result["status"],
        quotes=cut.quotes([Quote(**one) for one in result["quotes"]]),
        unsupported=cut.listed("unsupported", result["unsupported"]),
        reading=id,
        share_read=round(min(1.0, result["share_read"]), 4),
        turns=result["turns"],
        tokens=Tokens(
            document=int(result["document"].get("tokens", 0)),
            prompt=sum(one["prompt_tokens"] for one in used),
            completion=sum(one["completion_tokens"] for one in used),
        ),
        left_out=cut.listed("left_out", [one["reason"] for one in skipped if one.get("broken")]),
        cut=cut.fields,
    )


def summary_of(record: ReadingRecord) -> Summary:
    """A reading for a list."""
    return Summary(**_summed(record, _BRIEF, _Cut()))


def told_of(journal: Journal, record: ReadingRecord, *, memories: bool) -> Told:
    """A reading with its newest turns; with `memories`, with the memory after each. Raises JournalError for a verification
    of which nothing can be made."""
    cut, verdicts = _Cut(), stored_verdicts(record)
    first = max(0, record.turns - _TURNS)
    if first:
        cut.fields.append("progress")
    turns = list(journal.turns(record.id, first))
    memory = cut.text("memory", turns[-1].memory if turns else "", _TEXT)
    return Told(
        **_summed(record, _TEXT, cut),
        memory=memory,
        answer_status=verdicts[0].status if len(verdicts) == 1 else None,
        quotes=cut.quotes([quote for one in verdicts for quote in one.quotes]),
        unsupported=cut.listed("unsupported", [claim for one in verdicts for claim in one.unsupported]),
        progress=_turns(turns, cut, memories),
        cut=cut.fields,
    )


def _summed(record: ReadingRecord, most: int, cut: _Cut) -> dict[str, Any]:
    files = record.document.get("files")
    named = [str(one["name"]) for one in files if isinstance(one, dict)] if isinstance(files, list) else []
    if len(named) > _FILES:
        cut.fields.append("files")
    return {
        "reading": record.id,
        "status": record.status,
        "question": cut.text("question", record.question, most),
        "answer": None if record.answer is None else cut.text("answer", record.answer, most),
        "reason": None if record.reason is None else cut.text("reason", record.reason, most),
        "turns": record.turns,
        "planned": record.planned,
        "files": named[:_FILES],
        "created": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="seconds"),
    }


def _turns(entries: Sequence[TurnEntry], cut: _Cut, memories: bool) -> list[TurnTold]:
    """The turns, with the memories of the newest ones that there is room for."""
    room, told = _MEMORIES, list[TurnTold]()
    for number, entry in reversed(list(enumerate(entries))):
        changed = memories and (number == 0 or entries[number - 1].memory != entry.memory)
        room -= len(entry.memory) if changed else 0
        if changed and room < 0 and "progress.memory" not in cut.fields:
            cut.fields.append("progress.memory")
        told.append(
            TurnTold(
                turn=entry.number + 1,
                kind=entry.kind,
                outcome=entry.outcome,
                characters=[entry.spans[0][0], entry.spans[-1][1]] if entry.spans else None,
                memory=entry.memory if changed and room >= 0 else None,
            )
        )
    return told[::-1]


class _Cut:
    """Cuts to the limits, and remembers what was cut."""

    def __init__(self) -> None:
        self.fields: list[str] = []

    def text(self, name: str, text: str, most: int) -> str:
        if len(text) > most and name not in self.fields:
            self.fields.append(name)
        return short(text, most)

    def quotes(self, quotes: Sequence[Quote]) -> list[Passage]:
        if len(quotes) > _QUOTES:
            self.fields.append("quotes")
        return [
            Passage(
                cited_text=self.text("quotes", one.cited_text, _QUOTE),
                file=one.file,
                page=one.page,
                place=one.place,
                field=one.field,
            )
            for one in quotes[:_QUOTES]
        ]

    def listed(self, name: str, texts: Sequence[str]) -> list[str]:
        if len(texts) > _QUOTES:
            self.fields.append(name)
        return [self.text(name, one, _QUOTE) for one in texts[:_QUOTES]]


def short(text: str, most: int = _BRIEF) -> str:
    """A text cut to a number of characters, by default to that of texts in a list."""
    return _sound(text if len(text) <= most else text[: most - 1] + "…")


def _sound(text: str) -> str:
    """A text without unpaired surrogates, which no message can hold."""
    return text.encode("utf-8", "replace").decode()
