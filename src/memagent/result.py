"""What a reading came to: answer, memory, where they came from, and what it cost."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from memagent.core import Completion, LineOrigin, Outcome, Provenance, Span, Text
from memagent.core.outcomes import reply_text
from memagent.core.spans import merged
from memagent.core.types import TurnKind
from memagent.errors import ModelError

_QUOTE_CHARS = 70
_SHORTEST_SEARCHED = 2
# What a turn came to whose reply is no note.
_NO_NOTE = frozenset({"skipped", "unchanged", "empty", "malformed", "retry_long", "retry_empty"})


class Locator(Text, Protocol):
    """A text whose offsets can be said as file, page and offset."""

    def locate(self, offset: int) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a reading asked of the model. `seconds` is time spent waiting for the engine."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A memory line, the number of the turn that first wrote it, and the text that turn showed.

    The text begins at `place` and lies within characters [start, end); an excerpt leaves out some of them.
    """

    line: str
    turn: int
    start: int | None
    end: int | None
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Where the words of the answer stand in the text that the memory came from: character offset, place, quotation."""

    text: str
    turn: int
    offset: int
    place: str
    quote: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of one document × one question. `error` is None, or why there is no answer; `cause` the exception behind.

    `share_read` is the share of the document that was shown to the model, from 0 to 1. `seconds` is how long the reading
    took; of sessions before it was resumed, what the engine took is counted.
    """

    question: str
    answer: str
    memory: str
    id: str | None = None
    error: str | None = None
    turns: int = 0
    share_read: float = 0.0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    usage: Usage = Usage()
    provenance: tuple[Source, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    identity: str = ""
    seconds: float = 0.0
    cause: ModelError | None = field(default=None, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values, in the order a person would read them."""
        values = asdict(replace(self, cause=None))
        del values["cause"]
        values["reading"] = values.pop("id")
        first = (
            "answer",
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

    def __init__(self) -> None:
        self.turns = 0
        self.outcomes: Counter[str] = Counter()
        self.usage = Usage()
        self.last_spans: tuple[Span, ...] = ()  # what the last turn showed
        self._shown: list[Span] = []
        self._provenance = Provenance()

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
        # Of what the model said, its reasoning is no note.
        reply = "" if outcome in _NO_NOTE else reply_text(Completion(text=str(completion.get("text", ""))), "", False)[0]
        self._provenance.update(number, spans, memory, kind=kind, reply=reply)
        added = {key: completion.get(key, 0) for key in ("prompt_tokens", "completion_tokens", "cached_tokens", "seconds")}
        self.usage = Usage(
            calls=self.usage.calls + 1,
            **{key: getattr(self.usage, key) + value for key, value in added.items()},
        )

    @property
    def characters_read(self) -> int:
        """Characters of the document that some turn showed."""
        return sum(map(len, self._shown))

    @property
    def origins(self) -> tuple[LineOrigin, ...]:
        return self._provenance.origins


def sources(origins: Iterable[LineOrigin], text: Locator) -> tuple[Source, ...]:
    """Memory lines with the place they were read at."""
    return tuple(
        Source(
            line=origin.line,
            turn=origin.turn,
            start=origin.spans[0].start if origin.spans else None,
            end=origin.spans[-1].end if origin.spans else None,
            place=str(text.locate(origin.spans[0].start)) if origin.spans else "",
        )
        for origin in origins
    )


def evidence(answer: str, origins: Iterable[LineOrigin], text: Locator) -> tuple[Evidence, ...]:
    """Looks for the answer, or each item of a listed one, in the text that the memory lines were written from.

    Spans of lines that hold the words come first. Words that stand in no such span give no entry: the model may have put
    it in its own words, or made it up. Case is ignored.
    """
    known = [origin for origin in origins if origin.spans]
    return tuple(found for item in _items(answer, known, text) for found in _find(item, known, text))


def _items(answer: str, origins: list[LineOrigin], text: Locator) -> Iterator[str]:
    whole = answer.strip().rstrip(".")
    if next(_find(whole, origins, text), None) is not None:
        yield whole
        return
    pieces = [piece.strip() for piece in whole.replace(";", ",").replace("\n", ",").split(",")]
    yield from dict.fromkeys(piece for piece in pieces if piece)


def _find(item: str, origins: list[LineOrigin], text: Locator) -> Iterator[Evidence]:
    """The first span in which the item stands, as at most one entry."""
    if len(item) < _SHORTEST_SEARCHED:
        return
    sought = _pattern(item)
    ordered = sorted(origins, key=lambda origin: sought.search(origin.line) is None)
    for turn, span in ((origin.turn, span) for origin in ordered for span in origin.spans):
        content = text.read(span.start, span.end)
        if match := sought.search(content):
            offset = span.start + match.start()
            quote = _quote(content, match.start(), len(match.group()))
            yield Evidence(text=item, turn=turn, offset=offset, place=str(text.locate(offset)), quote=quote)
            return


def _pattern(item: str) -> re.Pattern[str]:
    """The words of the item as whole words, whatever white space is between them, in any case.

    Scripts written without spaces have no word borders to look for.
    """
    words = r"\s+".join(re.escape(word) for word in item.split())
    before, after = (r"(?<!\w)" if _has_borders(item[0]) else "", r"(?!\w)" if _has_borders(item[-1]) else "")
    return re.compile(before + words + after, re.IGNORECASE)


def _has_borders(char: str) -> bool:
    return char.isalnum() and unicodedata.east_asian_width(char) not in "WF"


def _quote(content: str, place: int, length: int) -> str:
    """The words around, on one line, cut at white space."""
    start, end = max(0, place - _QUOTE_CHARS), min(len(content), place + length + _QUOTE_CHARS)
    before, after = content[start:place], content[place + length : end]
    if start > 0:
        before = "…" + before.partition(" ")[2]
    if end < len(content):
        after = after.rpartition(" ")[0] + "…"
    return " ".join((before + content[place : place + length] + after).split())
