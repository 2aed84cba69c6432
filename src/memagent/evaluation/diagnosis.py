"""What became of each needed fact on its way through a reading, from the known places of the facts.

A fact is looked for by its value, by words: case, punctuation and compatibility forms do not matter, and "12" is not found
in "4123". A number is one word: "12" is found neither in "12.5" nor in "12,345", which is the same as "12345". A memory
that tells the same in other words counts as not holding it; a short value may stand there by chance.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from memagent.evaluation.records import Record, RecordedTurn
from memagent.tasks.samples import Fact

Verdict: TypeAlias = Literal["failed", "not_shown", "split", "missed", "lost", "answer", "unknown"]

VERDICTS: Mapping[Verdict, str] = {
    "failed": "no answer: the reading failed",
    "not_shown": "a needed fact was never shown",
    "split": "a needed fact was cut by a chunk border, and never kept",
    "missed": "a needed fact was shown, but never kept",
    "lost": "a needed fact was kept, then lost",
    "answer": "all there at the end, but answered wrong",
    "unknown": "cannot be said: the values of the needed facts are not known",
}

_RETRIES = frozenset({"retry_long", "retry_empty"})
_ARTICLES = frozenset({"a", "an", "the"})
_WORD = re.compile(r"[^\W_]+(?:\.(?<=\d\.)(?=\d)[^\W_]+)*")
# A comma between digits: of thousands, before exactly three digits; of decimals, before one or two. Else it parts a list of
# numbers. The comma comes first in the patterns because that is what makes them fast.
_THOUSANDS = re.compile(r",(?=\d{3}(?!\d))(?<=\d,)(?<!\d{4},)")
_DECIMALS = re.compile(r",(?=\d{1,2}(?!\d))(?<=\d,)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FactTrace:
    """A needed fact and the turns (by number) that mattered to it.

    shown   the first turn that showed any of it; None: no turn did
    whole   whether some turn showed all of it at once; if not, chunk borders cut it everywhere
    gains   turns after which its value stood in the memory and before which it did not, from `shown` on
    losses  turns after which it was gone; gains and losses take turns
    held    memory updates that it survived
    """

    fact: Fact
    shown: int | None
    whole: bool
    gains: tuple[int, ...] = ()
    losses: tuple[int, ...] = ()
    held: int = 0

    @property
    def followed(self) -> bool:
        """Whether it has a value that can be looked for."""
        return bool(_words(self.fact.value))

    @property
    def at_end(self) -> bool:
        return len(self.gains) > len(self.losses)

    @property
    def missed(self) -> bool:
        """Shown, never kept."""
        return self.followed and self.shown is not None and not self.gains

    @property
    def drifted(self) -> bool:
        """Kept, and gone at the end."""
        return bool(self.gains) and not self.at_end


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What became of one reading.

    `traces` has the needed facts in document order, `outcomes` how often each outcome of a turn came up. `updates`: whether
    a memory was written at all. `filler` is the share of the last memory's words that stand neither in the question nor in
    a needed fact; None where there is no memory.
    """

    traces: tuple[FactTrace, ...]
    outcomes: Mapping[str, int]
    updates: bool
    failed: bool
    filler: float | None

    @property
    def coverage(self) -> float | None:
        """The share of the needed facts that were shown whole; None if none is known."""
        return sum(trace.whole for trace in self.traces) / len(self.traces) if self.traces else None

    @property
    def verdict(self) -> Verdict:
        """Why an answer is not right, if it is not: the earliest stage at which one of the needed facts fell out."""
        if self.failed:
            return "failed"
        if any(trace.shown is None for trace in self.traces):
            return "not_shown"
        if any(not trace.whole and not trace.gains for trace in self.traces):
            return "split"
        if not self.updates:
            return "answer" if self.traces else "unknown"
        if any(trace.missed for trace in self.traces):
            return "missed"
        if any(trace.drifted for trace in self.traces):
            return "lost"
        return "answer" if self.traces and all(trace.followed for trace in self.traces) else "unknown"


def diagnose(record: Record) -> Diagnosis:
    """Follows every needed fact of a reading."""
    needed = [fact for fact in record.facts if fact.needed]
    updates = [turn for turn in record.turns if turn.kind in ("update", "merge") and turn.outcome not in _RETRIES]
    places = [_shown(record, fact) for fact in needed]
    return Diagnosis(
        traces=tuple(_traces(needed, places, updates)),
        outcomes=Counter(turn.outcome for turn in record.turns),
        updates=bool(updates),
        failed=record.status == "failed",
        filler=_filler(record, needed),
    )


def stands_in(value: str, text: str) -> bool:
    """Whether the words of `value` stand in `text`, side by side and whole."""
    words = _words(value)
    return bool(words) and _found(words, _fold(text))


def _shown(record: Record, fact: Fact) -> tuple[int | None, bool]:
    """The first turn that showed any of a fact, and whether it was ever shown whole."""
    first: int | None = None
    for turn in record.turns:
        for span in turn.spans if turn.kind != "merge" else ():  # it shows notes on them
            if span.start < fact.end and fact.start < span.end:
                first = turn.number if first is None else first
                if span.start <= fact.start and fact.end <= span.end:
                    return first, True
    return first, False


def _traces(needed: list[Fact], places: list[tuple[int | None, bool]], updates: list[RecordedTurn]) -> Iterator[FactTrace]:
    """The comings and goings of each fact. A value that stands in the memory before its fact was shown is chance."""
    memories = [(turn.number, None if turn.memory is None else _fold(turn.memory)) for turn in updates]
    for fact, (shown, whole) in zip(needed, places, strict=True):
        gains: list[int] = []
        losses: list[int] = []
        words, present, held = _words(fact.value), False, 0
        first = shown if words and shown is not None else math.inf
        for number, memory in memories if first < math.inf else ():
            before = len(gains) > len(losses)
            if memory is not None:
                present = _found(words, memory)
            held += before and present
            if before and not present:
                losses.append(number)
            elif present and not before and number >= first:
                gains.append(number)
        yield FactTrace(fact=fact, shown=shown, whole=whole, gains=tuple(gains), losses=tuple(losses), held=held)


def _filler(record: Record, needed: Iterable[Fact]) -> float | None:
    words = _WORD.findall(_fold(record.memory))
    known = set(_WORD.findall(_fold(" ".join([record.question, *(f"{fact.text} {fact.value}" for fact in needed)]))))
    return sum(word not in known for word in words) / len(words) if words else None


def _fold(text: str) -> str:
    """The text as it is compared: lower case, compatibility forms, numbers without thousands separators."""
    folded = (text if text.isascii() else unicodedata.normalize("NFKC", text)).lower()
    return _DECIMALS.sub(".", _THOUSANDS.sub("", folded)) if "," in folded else folded


def _words(value: str) -> list[str]:
    """The words to look for: a leading article is not one of them."""
    words = _WORD.findall(_fold(value))
    return words[1:] if len(words) > 1 and words[0] in _ARTICLES else words


def _found(words: list[str], folded: str) -> bool:
    """Whether the words stand side by side. Most memories are done with after the first test, which is all but free."""
    if any(word not in folded for word in words):
        return False
    wanted, text = " ".join(words), folded if len(words) == 1 else " ".join(_WORD.findall(folded))
    place = text.find(wanted)
    while place >= 0:
        if not (_joined(text, place) or _joined(text, place + len(wanted))):
            return True
        place = text.find(wanted, place + 1)
    return False


def _joined(text: str, place: int) -> bool:
    """Whether the characters around a place are of one word. Scripts without capitals have no spaces to go by either."""
    if not 0 < place < len(text):
        return False
    point = place if text[place] == "." else place - 1 if text[place - 1] == "." else 0
    if point:
        return text[point - 1].isdigit() and text[point + 1 : point + 2].isdigit()
    return _in_word(text[place - 1]) and _in_word(text[place])


def _in_word(char: str) -> bool:
    return char.isdigit() or char.upper() != char.lower()
