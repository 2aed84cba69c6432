"""What a reading came to: answer, memory, where they came from, and what it cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from memagent.core import Completion, LineOrigin, Outcome, Provenance, Span
from memagent.core.outcomes import reply_text
from memagent.core.spans import merged
from memagent.core.types import TurnKind, Usage
from memagent.errors import ModelError
from memagent.grounding.normal import WORD
from memagent.grounding.run import Verified
from memagent.grounding.verdict import Located, Quote, Status, Verdict
from memagent.journal import TurnEntry

_PLACES = 256  # of a memory line that are looked at, the last ones
# What a turn came to whose reply is no note; "malformed" is in older journals, for a reply that was not taken.
_NO_NOTE = frozenset(
    {"skipped", "unchanged", "empty", "malformed", "retry_long", "retry_empty", "retry_invalid", "invalid"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A memory line, the number of the turn that first wrote it, and the text that turn showed.

    The text begins at `place` and lies within characters [start, end); an excerpt leaves out some of them. Of a line that
    came from several places, it is the one that has the most of its words.
    """

    line: str
    turn: int
    start: int | None
    end: int | None
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of one document × one question. `error` is None, or why there is no answer; `cause` the exception behind.

    `data` is the value of an answer that follows a schema, whose JSON `answer` is; None otherwise, or if there is none.

    `status`, `quotes` and `unsupported` say whether the document supports the answer, as in `Verdict`; `status` is None if
    it was not verified. `verification` is what that cost, and is not part of `usage`; `verification_error` says what went
    wrong with it.

    `turns_resumed` counts those of the turns that the journal had already when the reading was resumed or extended.
    `share_read` is the share of the document that was shown to the model, from 0 to 1. `seconds` is how long the reading
    took; of sessions before it was resumed, what the engine took is counted.
    """

    question: str
    answer: str
    memory: str
    data: Any = None
    id: str | None = None
    error: str | None = None
    turns: int = 0
    turns_resumed: int = 0
    share_read: float = 0.0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    provenance: tuple[Source, ...] = ()
    status: Status | None = None
    quotes: tuple[Quote, ...] = ()
    unsupported: tuple[str, ...] = ()
    verification: Usage = field(default_factory=Usage)
    verification_error: str | None = None
    document: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    identity: str = ""
    seconds: float = 0.0
    cause: ModelError | None = field(default=None, compare=False, repr=False)

    @property
    def verdict(self) -> Verdict | None:
        """What verification came to; None: it was not verified."""
        if self.status is None:
            return None
        return Verdict(status=self.status, quotes=self.quotes, unsupported=self.unsupported, error=self.verification_error)

    def verified(self, found: Verified) -> Reading:
        """The same reading with what verification came to."""
        verdict = found.verdict
        return replace(
            self,
            status=verdict.status,
            quotes=verdict.quotes,
            unsupported=verdict.unsupported,
            verification=found.usage,
            verification_error=verdict.error,
        )

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values, in the order a person would read them."""
        plain = Reading(**{item.name: getattr(self, item.name) for item in fields(Reading) if item.name != "cause"})
        values = asdict(plain)
        del values["cause"]
        values["reading"] = values.pop("id")
        first = (
            "answer",
            "data",
            "status",
            "quotes",
            "unsupported",
            "memory",
            "reading",
            "turns",
            "share_read",
            "document",
            "usage",
            "seconds",
            "model",
            "provenance",
        )
        return {key: values[key] for key in (*first, *(key for key in values if key not in first))}


class Ledger:
    """Follows one reading turn by turn: counts, usage and the origin of memory lines. Memory use does not grow."""

    def __init__(self, provenance: Provenance | None = None) -> None:
        self.turns = 0
        self.outcomes: Counter[str] = Counter()
        self.usage = Usage()
        self.last_spans: tuple[Span, ...] = ()  # what the last turn showed
        self._shown: list[Span] = []
        self._provenance = provenance or Provenance()

    def add(
        self,
        number: int,
        kind: TurnKind | str,
        spans: tuple[Span, ...],
        outcome: Outcome | str,
        memory: str,
        completion: Mapping[str, Any],
    ) -> None:
        """Takes in a finished turn. `completion` has the reply as `text`, and the token counts and seconds of `Usage`."""
        self.turns += 1
        self.outcomes[outcome] += 1
        self.last_spans = spans
        self._shown = list(merged([*self._shown, *spans]))
        reply = "" if outcome in _NO_NOTE else _said(str(completion.get("text", "")))
        self._provenance.update(number, spans, memory, kind=kind, reply=reply)
        added = {key: completion.get(key, 0) for key in ("prompt_tokens", "completion_tokens", "cached_tokens", "seconds")}
        self.usage += Usage(calls=1, **added)

    def take(self, entry: TurnEntry) -> None:
        """Takes in a turn from the journal."""
        self.add(entry.number, entry.kind, entry.shown, entry.outcome, entry.memory, entry.completion)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values. Notes that wait to be merged are left out: it is for readings without them."""
        origins = [[one.line, one.turn, [[span.start, span.end] for span in one.spans]] for one in self.origins]
        shown = [[span.start, span.end] for span in self._shown]
        kept = {"turns": self.turns, "outcomes": dict(self.outcomes), "usage": asdict(self.usage)}
        return {**kept, "shown": shown, "origins": origins}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Ledger:
        """The ledger that `to_json` wrote."""
        ledger = cls(
            Provenance(LineOrigin(line=line, turn=turn, spans=_spans(spans)) for line, turn, spans in values["origins"])
        )
        ledger.turns, ledger.outcomes = values["turns"], Counter(values["outcomes"])
        ledger.usage, ledger._shown = Usage(**values["usage"]), list(_spans(values["shown"]))
        return ledger

    @property
    def characters_read(self) -> int:
        """Characters of the document that some turn showed."""
        return sum(map(len, self._shown))

    @property
    def provenance(self) -> Provenance:
        return self._provenance

    @property
    def origins(self) -> tuple[LineOrigin, ...]:
        return self._provenance.origins


def _said(text: str) -> str:
    """The lines of a reply that may have become a note: its reasoning is none.

    A closing tag alone may also be a quotation of the text that the model was shown, which is not at hand here. Then these
    are the lines of both: one that never became a line of a memory is traced nowhere.
    """
    reply = reply_text(Completion(text=text), "", False)[0]
    quoting = reply_text(Completion(text=text), text, False)[0]
    return reply if quoting == reply else f"{quoting}\n{reply}"


def _spans(values: Iterable[Iterable[int]]) -> tuple[Span, ...]:
    return tuple(Span(start=start, end=end) for start, end in values)


def indented(value: Any) -> str:
    """A value as people read it: JSON on several lines."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def sources(origins: Iterable[LineOrigin], text: Located) -> tuple[Source, ...]:
    """Memory lines with the place they were read at."""
    return tuple(_source(origin, text) for origin in origins)


def _source(origin: LineOrigin, text: Located) -> Source:
    if not origin.spans:
        return Source(line=origin.line, turn=origin.turn, start=None, end=None, place="")
    words, spans = set(WORD.findall(origin.line.casefold())), origin.spans[-_PLACES:]

    def shared(span: Span) -> int:
        content = text.read(span.start, span.end).casefold()
        return sum(word in content for word in words)

    best = max(reversed(spans), key=shared) if len(spans) > 1 else spans[0]
    return Source(line=origin.line, turn=origin.turn, start=best.start, end=best.end, place=str(text.locate(best.start)))


def no_answer(mistake: str, cut: bool) -> str:
    """Why a reading has no answer: its schema's `mistake`, or a reply that was `cut` before its reasoning had ended."""
    if mistake:
        return f"the answer does not follow its schema: {mistake}"
    why = (
        ", because it had not ended its reasoning at its last token: give it more with --reasoning-tokens"
        " (`reasoning_tokens` in Python)"
    )
    return f"the model gave an empty answer{why if cut else ''}"
