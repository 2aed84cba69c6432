"""The values in the journal, and their encoding."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from memagent.core.types import Span
from memagent.errors import JournalError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
Status: TypeAlias = Literal["running", "interrupted", "answered", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEntry:
    """One finished turn.

    `number` counts the turns of the reading from 0, in the order in which they ended; `id` names the turn within its
    reading, whatever the order. `spans` are the characters of the document that it showed, as (start, end), half open (none
    for an answer from the memory). `memory` is the memory after the turn. `completion` and `state` are JSON objects: what
    the engine returned, and the protocol state after the turn. Without a state, the reading goes on from the last one that
    there is, by replaying the completions after it. `splits` names the turns that were split since the turn before, in
    order; a replay splits them again.
    """

    number: int
    id: str
    kind: str
    outcome: str
    spans: tuple[tuple[int, int], ...] = ()
    memory: str
    completion: Mapping[str, JSON]
    state: Mapping[str, JSON] | None = None
    splits: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[Span, ...]:
        """The characters of the document that it showed, as spans."""
        return tuple(Span(start=start, end=end) for start, end in self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The chunks of the text with the digest `document`, as JSON; `way` names tokenizer, limit and rules. Without chunks,
    those that the journal has."""

    document: str
    way: str
    chunks: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRecord:
    """One reading without its turns, which `Journal.turns` streams.

    `status` is `interrupted` where the reading is unfinished and no live process holds it: it can be resumed.
    `created` and `updated` are seconds since 1970; `seconds` is how long the reading took, as its driver measured it.
    `turns` counts the turns stored, `planned` the turns expected (None: unknown). `owner` says in words who is at it.
    `verdicts` are what verification of the answer came to, one for each question; None: it was not verified.
    `protocol` is the version of the reading protocol that its turns follow: an older one can be shown, not resumed.
    """

    id: str
    status: Status
    question: str
    settings: Mapping[str, JSON]
    document: Mapping[str, JSON]
    plan_digest: str
    created: float
    updated: float
    turns: int
    planned: int | None = None
    answer: str | None = None
    reason: str | None = None
    seconds: float | None = None
    verdicts: tuple[Mapping[str, Any], ...] | None = None
    owner: str = ""
    protocol: int = 2


def pack(text: str) -> str | bytes:
    """Text for SQLite: a BLOB if it has unpaired surrogates, which UTF-8 TEXT cannot contain."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def unpack(stored: str | bytes) -> str:
    """The inverse of `pack`."""
    return stored.decode("utf-8", "surrogatepass") if isinstance(stored, bytes) else stored


def dump(value: JSON, what: str) -> str:
    """Compact JSON. Raises JournalError that names `what` for values that JSON cannot represent, such as NaN."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise JournalError(
            f"{what} cannot be written as JSON ({error}): use strings, finite numbers, lists and dicts"
        ) from error


def dump_folded(values: Mapping[str, JSON], memory: str, what: str) -> str | bytes:
    """A JSON object in which top-level strings that equal the memory are replaced by their names: [[names], {others}]."""
    same = [name for name, value in values.items() if memory and value == memory]
    rest = {name: value for name, value in values.items() if name not in same}
    return pack(dump([same, rest], what))


def load_folded(stored: str | bytes, memory: str) -> dict[str, Any]:
    """The inverse of `dump_folded`."""
    same, rest = json.loads(unpack(stored))
    return {**rest, **dict.fromkeys(same, memory)}


def dump_line(value: Mapping[str, JSON], what: str) -> str:
    """One JSON line in UTF-8, with escapes only for text with unpaired surrogates."""
    line = dump(value, what)
    return line if isinstance(pack(line), str) else json.dumps(value, separators=(",", ":"))
