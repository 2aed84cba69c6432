"""Where each line of a memory came from: the turn that first wrote it, and the text that turn showed.

Where notes are merged, the turn that wrote a line showed no text but notes. Its line is then traced to those notes, or
lines of the memory before, that hold its words: verbatim, or as few of them as it takes to cover the words that they know.

A model that rewrites its memory also rewords it: it renumbers a list, or adds a sentence to a paragraph. A line with the
same words is traced to the one that it replaced, and another to those that it replaced and to the text of its turn.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter

from memagent.core.spans import merged
from memagent.core.types import Span, TurnKind

_WORD = re.compile(r"[^\W_]+")
_MARK = re.compile(r"^(?:[-*•–>]|\(?\d{1,3}[.)])\s+")  # of an item of a list


@dataclass(frozen=True, slots=True, kw_only=True)
class LineOrigin:
    """A line of the memory, the number of the turn that first wrote it and the spans shown in that turn.

    First means: since then the line has been in every memory. A line that was dropped and written again counts from its
    return; one that says what a line before it said, in another form, counts from that. Of a line merged from several
    notes, `turn` is the first of the turns that wrote them.
    """

    line: str
    turn: int
    spans: tuple[Span, ...] = ()


class _Gone:
    """A line that a turn took out of the memory, with its words and numbers."""

    def __init__(self, origin: LineOrigin) -> None:
        self.origin, self.words = origin, _words(origin.line)
        self.numbers = {word for word in self.words if word.isdigit()}


class Provenance:
    """Follows the memory turn by turn, from lines that are known (`origins`). Holds the lines of the present memory and of
    notes that wait to be merged."""

    def __init__(self, origins: Iterable[LineOrigin] = ()) -> None:
        self._origins = {origin.line: origin for origin in origins}
        self._noted: dict[str, LineOrigin] = {}
        self._places: list[tuple[int, LineOrigin]] = []  # the noted lines by where their text starts, sorted

    def update(
        self, turn: int, spans: tuple[Span, ...], memory: str, *, kind: TurnKind | str = "update", reply: str = ""
    ) -> None:
        """Takes in the memory after `turn`, in which `spans` were shown. `reply` is what a turn noted or merged."""
        if kind in ("note", "merge"):
            known = self._known(spans) if kind == "merge" else {}
            for origin in [_traced(line, turn, spans, known) for line in _lines(reply)]:
                self._noted.setdefault(origin.line, origin)
                insort(self._places, (origin.spans[0].start if origin.spans else 0, origin), key=itemgetter(0))
        before, lines = self._origins, _lines(memory)
        kept = set(lines)
        gone = {tuple(_said(line)): _Gone(origin) for line, origin in before.items() if line not in kept}
        self._origins = {
            line: before.get(line) or self._noted.get(line) or _reworded(line, turn, spans, gone) for line in lines
        }
        if kind not in ("note", "merge") or list(before) != list(self._origins):
            self._noted, self._places = {}, []

    def _known(self, spans: tuple[Span, ...]) -> dict[LineOrigin, set[str]]:
        """The lines of the memory and of the notes on `spans` (none: of all notes), and the words of each.

        A merge has only these to write from; to look at all notes each time would take as long as their number squared.
        """
        noted = self._places
        if spans:
            ends = [
                (bisect_left(noted, one.start, key=itemgetter(0)), bisect_left(noted, one.end, key=itemgetter(0)))
                for one in spans
            ]
            noted = [found for first, last in ends for found in noted[first:last]]
        return {origin: _words(origin.line) for origin in [*self._origins.values(), *(origin for _, origin in noted)]}

    @property
    def origins(self) -> tuple[LineOrigin, ...]:
        """One entry per distinct line of the present memory, in its order."""
        return tuple(self._origins.values())


def provenance(memories: Iterable[tuple[int, tuple[Span, ...], str]]) -> tuple[LineOrigin, ...]:
    """Origins of the lines of the last memory of a sequence (turn, spans shown, memory after it)."""
    follower = Provenance()
    for turn, spans, memory in memories:
        follower.update(turn, spans, memory)
    return follower.origins


def _lines(text: str) -> list[str]:
    return list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))


def _said(line: str) -> list[str]:
    return _WORD.findall(_MARK.sub("", line).lower())


def _words(line: str) -> set[str]:
    return set(_said(line))


def _reworded(line: str, turn: int, spans: tuple[Span, ...], gone: Mapping[tuple[str, ...], _Gone]) -> LineOrigin:
    """The origin of a line that a turn wrote which took lines out; `gone` has these by their words. If it says what one of
    them said, it has the origin of that. Otherwise it comes from the text of the turn, and from those of which it has more
    than half of the words, and one of the numbers, if they have any."""
    said = tuple(_said(line))
    if (same := gone.get(said)) is not None:
        return LineOrigin(line=line, turn=same.origin.turn, spans=same.origin.spans)
    words = set(said)
    sources = [
        one.origin
        for one in gone.values()
        if 2 * len(one.words & words) > len(one.words) and not (one.numbers and one.numbers.isdisjoint(words))
    ]
    where = {*spans, *(span for one in sources for span in one.spans)}
    return LineOrigin(line=line, turn=turn, spans=tuple(sorted(where, key=lambda span: (span.start, span.end))))


def _traced(line: str, turn: int, spans: tuple[Span, ...], known: Mapping[LineOrigin, set[str]]) -> LineOrigin:
    """The origin of a line that a note wrote, or a merge of `known` lines. A turn that showed no text wrote it from these:
    in words of its own, from any of them."""
    found = _covering(line, known)
    if not found:
        anywhere = spans or tuple(merged(span for one in known for span in one.spans))
        return LineOrigin(line=line, turn=turn, spans=anywhere)
    together = tuple(merged(span for one in found for span in one.spans))
    return LineOrigin(line=line, turn=min(one.turn for one in found), spans=together)


def _covering(line: str, known: Mapping[LineOrigin, set[str]]) -> list[LineOrigin]:
    """The fewest known lines that hold the words of `line`, greedily, the one with most of them first.

    [] if they do not hold half of its words: a line that shares an "is" with a note need not come from it.
    """
    words, chosen = _words(line), list[LineOrigin]()
    missing = set(words)
    while missing:
        best = max(known, key=lambda origin: len(known[origin] & missing), default=None)
        if best is None or not known[best] & missing:
            break
        chosen.append(best)
        missing -= known[best]
    return chosen if 2 * len(missing) <= len(words) else []
