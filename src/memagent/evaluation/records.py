"""One record for each reading of a run: what was asked, what came back, turn by turn, and how it scored.

A run folder holds `run.json` (configuration, versions, machine) and `records.jsonl` (one line a record, in the order the
readings ended). A reading that failed is a record with its error and scores of 0: no row is ever left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias

from memagent.core.types import Span
from memagent.scoring import Mode
from memagent.tasks.samples import Fact

RECORD_VERSION = 1
Status: TypeAlias = Literal["answered", "failed"]
ReaderName: TypeAlias = Literal["memory", "whole", "truncate", "retrieve", "refine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """A finished turn. `span` is the text shown: characters of what the reader read (None for the answer turn).

    For memory, refine and whole that is the document itself; for truncate and retrieve it is the text put together from the
    record's `shown` spans. `memory` is the memory after the turn; None: the same as before. `reply` is what the model said
    where that is not what the memory or the answer became. `outcome` is one of `memagent.core.outcomes`. Token counts and
    `seconds` are the engine's, in a batch a share of it.
    """

    number: int
    kind: str
    span: Span | None
    outcome: str
    memory: str | None
    reply: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One reading of one sample: try number `attempt` of it.

    `tokens` and `characters` are the length of the document. `shown` are the characters of the document that the reader
    chose to show (None: all of it). `error` says why there is no answer, `error_kind` is the class of it ("too_long": the
    document does not fit this reader). `scores` has every scorer of `memagent.scoring.SCORERS`. `seconds` is the engine's
    time for this reading (its share in a batch), `wall` the time from its start to its end.
    """

    sample: str
    attempt: int
    task: str
    reader: ReaderName
    question: str
    answers: tuple[str, ...]
    mode: Mode
    tokens: int
    characters: int
    facts: tuple[Fact, ...]
    meta: Mapping[str, Any]
    status: Status
    answer: str
    error: str | None = None
    error_kind: str | None = None
    scores: Mapping[str, float]
    shown: tuple[Span, ...] | None = None
    turns: tuple[RecordedTurn, ...] = ()
    seconds: float = 0.0
    wall: float = 0.0

    @property
    def key(self) -> tuple[str, int]:
        """What a run knows the record by."""
        return self.sample, self.attempt

    @property
    def memory(self) -> str:
        """The memory at the end."""
        return next((turn.memory for turn in reversed(self.turns) if turn.memory is not None), "")

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values; `record_from_json` gives the same record back."""
        values = asdict(self) | {"version": RECORD_VERSION}
        values["turns"] = [_turn_to_json(turn) for turn in self.turns]
        if self.shown is not None:
            values["shown"] = [[span.start, span.end] for span in self.shown]
        return values


_TURN_FIELDS = ("number", "kind", "outcome", "prompt_tokens", "completion_tokens", "cached_tokens", "seconds")


def record_from_json(values: Mapping[str, Any]) -> Record:
    """The record that `to_json` wrote. Raises KeyError or TypeError for anything else."""
    given = {item.name: values[item.name] for item in fields(Record)}
    given["answers"] = tuple(values["answers"])
    given["facts"] = tuple(Fact(**fact) for fact in values["facts"])
    given["turns"] = tuple(_turn_from_json(turn) for turn in values["turns"])
    if values["shown"] is not None:
        given["shown"] = tuple(Span(start=start, end=end) for start, end in values["shown"])
    return Record(**given)


def _turn_to_json(turn: RecordedTurn) -> dict[str, Any]:
    """Compact: a long reading has thousands of turns that change nothing."""
    values: dict[str, Any] = {name: getattr(turn, name) for name in _TURN_FIELDS}
    values["seconds"] = round(turn.seconds, 6)
    if not turn.cached_tokens:
        del values["cached_tokens"]
    if turn.span is not None:
        values["span"] = [turn.span.start, turn.span.end]
    if turn.memory is not None:
        values["memory"] = turn.memory
    if turn.reply is not None:
        values["reply"] = turn.reply
    return values


def _turn_from_json(values: Mapping[str, Any]) -> RecordedTurn:
    span = values.get("span")
    return RecordedTurn(
        **{name: values[name] for name in _TURN_FIELDS if name in values},
        span=Span(start=span[0], end=span[1]) if span else None,
        memory=values.get("memory"),
        reply=values.get("reply"),
    )
