"""A finished turn as the journal keeps it, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memagent.core.types import Completion
from memagent.driver import TurnRecord
from memagent.journal import TurnEntry

_COSTS = ("prompt_tokens", "completion_tokens", "cached_tokens", "seconds")


def turn_entry(record: TurnRecord) -> TurnEntry:
    """The journal entry of a finished turn."""
    return TurnEntry(
        number=record.number,
        id=record.id,
        kind=record.kind,
        outcome=record.outcome,
        spans=tuple((span.start, span.end) for span in record.spans),
        memory=record.memory,
        completion={
            "text": record.completion.text,
            "finish": record.completion.finish,
            "reasoning": record.completion.reasoning,
            **costs(record.completion),
        },
        state=record.state.to_json() if record.snapshot else None,
        splits=record.splits,
    )


def completion_of(values: Mapping[str, Any]) -> Completion:
    """The parts of a completion in the journal: everything that determines its outcome."""
    return Completion(**{name: values[name] for name in ("text", "finish", "reasoning", *_COSTS)})


def costs(completion: Completion) -> Mapping[str, Any]:
    """Tokens and seconds of a completion."""
    return {key: getattr(completion, key) for key in _COSTS}
