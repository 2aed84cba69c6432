"""One record for each reading of a run: question, turns, answer and scores.

A run folder contains `run.json` (configuration, versions, machine) and `records.jsonl` (one line per record, in the
order in which readings ended). A failed reading is a record with its error and scores of 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias

from memagent.core.readers import RENAMED
from memagent.core.types import Span
from memagent.scoring import Mode
from memagent.tasks.samples import Fact

RECORD_VERSION = 2
READABLE_VERSIONS = (1, RECORD_VERSION)
Status: TypeAlias = Literal["answered", "failed"]
_OPTIONAL = ("scorer", "identity")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """A finished turn. `spans` are the characters of the document that it showed (none for an answer from the memory).

    `memory` is the memory after the turn, or None if it did not change. `reply` is the model's reply if it differs from the
    new memory or the answer. `outcome` is one of `memagent.core.outcomes`. The engine reports token counts and `seconds`;
    in a batch, seconds are a share of it.
    """

    number: int
    id: str = ""
    kind: str
    spans: tuple[Span, ...]
    outcome: str
    memory: str | None
    reply: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0

    def shows(self, fact: Fact) -> bool:
        """Whether it showed any part of the fact."""
        return any(span.start < fact.end and fact.start < span.end for span in self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One reading of one sample, with its number `attempt`.

    `tokens` and `characters` are the length of the document. `shown` are the characters that the reader selected (None: it
    shows the whole document). `error` is the reason for a missing answer, and `error_kind` its class ("too_long": the
    document does not fit this reader). `scores` has every scorer of `memagent.scoring.SCORERS`, and the one that the sample
    names, if any (`scorer`). `seconds` is the engine time of this reading (its share in a batch), and `wall` the time from
    its start to its end. `identity` is the model that ended the reading, if its server was at another address than that of
    the run (else "").
    """

    sample: str
    attempt: int
    task: str
    reader: str
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
    scorer: str = ""
    shown: tuple[Span, ...] | None = None
    turns: tuple[RecordedTurn, ...] = ()
    seconds: float = 0.0
    wall: float = 0.0
    identity: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """The key of the record within a run."""
        return self.sample, self.attempt

    @property
    def memory(self) -> str:
        """The memory at the end."""
        return next((turn.memory for turn in reversed(self.turns) if turn.memory is not None), "")

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values; `record_from_json` gives the same record back."""
        values = asdict(self) | {"version": RECORD_VERSION}
        values["turns"] = [_turn_to_json(turn) for turn in self.turns]
        for name in _OPTIONAL:
            if not values[name]:
                del values[name]
        if self.shown is not None:
            values["shown"] = [[span.start, span.end] for span in self.shown]
        return values


_TURN_FIELDS = ("number", "id", "kind", "outcome", "prompt_tokens", "completion_tokens", "cached_tokens", "seconds")


def record_from_json(values: Mapping[str, Any]) -> Record:
    """The record that `to_json` wrote, in this version or an older one. Raises KeyError or TypeError for anything else."""
    if values["version"] == 1:
        values = _from_first_version(values)
    given = {item.name: values[item.name] for item in fields(Record) if item.name not in _OPTIONAL}
    given |= {name: values.get(name, "") for name in _OPTIONAL}
    given["answers"] = tuple(values["answers"])
    given["facts"] = tuple(Fact(**fact) for fact in values["facts"])
    given["turns"] = tuple(_turn_from_json(turn) for turn in values["turns"])
    if values["shown"] is not None:
        given["shown"] = _spans(values["shown"])
    return Record(**given)


def _from_first_version(values: Mapping[str, Any]) -> dict[str, Any]:
    """A record of version 1: a turn had one span, of the excerpt if there was one, and a direct answer had none."""
    direct = all(turn["kind"] == "answer" for turn in values["turns"])
    everything = [[0, values["characters"]]]
    turns = []
    for turn in values["turns"]:
        span = turn.get("span")
        shown = (values["shown"] or (everything if direct else [span])) if span or direct else []
        full = turn["outcome"] == "fitted" and values["reader"] == "refine"
        turns.append({**turn, "spans": shown, "outcome": "full" if full else turn["outcome"]})
    return {**values, "reader": RENAMED.get(values["reader"], values["reader"]), "turns": turns}


def _turn_to_json(turn: RecordedTurn) -> dict[str, Any]:
    """Compact, because a long reading has thousands of turns without changes."""
    values: dict[str, Any] = {name: getattr(turn, name) for name in _TURN_FIELDS}
    values["seconds"] = round(turn.seconds, 6)
    if not turn.cached_tokens:
        del values["cached_tokens"]
    if turn.spans:
        values["spans"] = [[span.start, span.end] for span in turn.spans]
    if turn.memory is not None:
        values["memory"] = turn.memory
    if turn.reply is not None:
        values["reply"] = turn.reply
    return values


def _turn_from_json(values: Mapping[str, Any]) -> RecordedTurn:
    return RecordedTurn(
        **{name: values[name] for name in _TURN_FIELDS if name in values},
        spans=_spans(values.get("spans", ())),
        memory=values.get("memory"),
        reply=values.get("reply"),
    )


def _spans(values: Iterable[tuple[int, int]]) -> tuple[Span, ...]:
    return tuple(Span(start=start, end=end) for start, end in values)
