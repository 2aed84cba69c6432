"""Follows each needed fact through a reading, from the known places of the facts.

Values are matched by words: case, punctuation and compatibility forms are ignored, and "12" does not match in "4123". A
number is one word: "12" matches neither in "12.5" nor in "12,345", which equals "12345". A memory that paraphrases a value
counts as not containing it, and a short value may match by chance.
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
    "failed": "the reading failed",
    "not_shown": "a needed fact was not shown",
    "split": "a needed fact was cut by a chunk border and never kept",
    "missed": "a needed fact was shown but never kept",
    "lost": "a needed fact was kept and then lost",
    "answer": "all facts were in the memory, but the answer is wrong",
    "unknown": "unknown: the values of the needed facts are not known",
}

RETRIES = frozenset({"retry_long", "retry_empty"})
_ARTICLES = frozenset({"a", "an", "the"})
_WORD = re.compile(r"[^\W_]+(?:\.(?<=\d\.)(?=\d)[^\W_]+)*")
# A comma between digits separates thousands before exactly three digits, decimals before one or two, and otherwise
# items of a list. The patterns begin with the comma because this makes them fast.
_THOUSANDS = re.compile(r",(?=\d{3}(?!\d))(?<=\d,)(?<!\d{4},)")
_DECIMALS = re.compile(r",(?=\d{1,2}(?!\d))(?<=\d,)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FactTrace:
    """A needed fact and the numbers of the turns that affected it.

    shown   the first turn that showed any part of it; None if no turn did
    whole   whether a turn showed all of it at once; otherwise chunk borders cut it everywhere
    gains   turns that added its value to the memory, from `shown` on
    losses  turns that removed it; gains and losses alternate
    held    the number of memory updates that it survived
    """

    fact: Fact
    shown: int | None
    whole: bool
    gains: tuple[int, ...] = ()
    losses: tuple[int, ...] = ()
    held: int = 0

    @property
    def followed(self) -> bool:
        """Whether it has a value to search for."""
        return bool(_words(self.fact.value))

    @property
    def at_end(self) -> bool:
        return len(self.gains) > len(self.losses)

    @property
    def missed(self) -> bool:
        """Shown but never kept."""
        return self.followed and self.shown is not None and not self.gains

    @property
    def drifted(self) -> bool:
        """Kept, but not in the memory at the end."""
        return bool(self.gains) and not self.at_end


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The diagnosis of one reading.

    `traces` has the needed facts in document order, and `outcomes` the number of turns with each outcome. `updates` says
    whether any memory was written. `filler` is the share of the last memory's words that are neither in the question nor in
    a needed fact; None without a memory.
    """

    traces: tuple[FactTrace, ...]
    outcomes: Mapping[str, int]
    updates: bool
    failed: bool
    filler: float | None

    @property
    def coverage(self) -> float | None:
        """The share of the needed facts that were shown whole; None without known facts."""
        return sum(trace.whole for trace in self.traces) / len(self.traces) if self.traces else None

    @property
    def verdict(self) -> Verdict:
        """The cause of a wrong answer: the earliest stage that lost one of the needed facts."""
        if self.failed:
            return "failed"
        if any(trace.shown is None for trace in self.traces):
            return "not_shown"
        if any(not trace.whole and not trace.gains for trace in self.traces if trace.followed or not self.updates):
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
    updates = [turn for turn in record.turns if turn.kind in ("update", "merge") and turn.outcome not in RETRIES]
    places = [_shown(record, fact) for fact in needed]
    return Diagnosis(
        traces=tuple(_traces(needed, places, updates)),
        outcomes=Counter(turn.outcome for turn in record.turns),
        updates=bool(updates),
        failed=record.status == "failed",
        filler=_filler(record, needed),
    )


def stands_in(value: str, text: str) -> bool:
    """Whether `text` contains the words of `value`, whole and next to each other."""
    words = _words(value)
    return bool(words) and _found(words, _fold(text))


def _shown(record: Record, fact: Fact) -> tuple[int | None, bool]:
    """The first turn that showed any part of a fact, and whether a turn showed it whole."""
    first: int | None = None
    for turn in record.turns:
        if turn.kind != "merge" and turn.shows(fact):  # a merge shows notes on its chunks
            first = turn.number if first is None else first
            if any(span.start <= fact.start and fact.end <= span.end for span in turn.spans):
                return first, True
    return first, False


def _traces(needed: list[Fact], places: list[tuple[int | None, bool]], updates: list[RecordedTurn]) -> Iterator[FactTrace]:
    """The trace of each fact. A value in the memory before its fact was shown is a coincidence and not a gain."""
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
    """The text normalised for comparison: lower case, compatibility forms, numbers without thousands separators."""
    folded = (text if text.isascii() else unicodedata.normalize("NFKC", text)).lower()
    return _DECIMALS.sub(".", _THOUSANDS.sub("", folded)) if "," in folded else folded


def _words(value: str) -> list[str]:
    """The words to search for, without a leading article."""
    words = _WORD.findall(_fold(value))
    return words[1:] if len(words) > 1 and words[0] in _ARTICLES else words


def _found(words: list[str], folded: str) -> bool:
    """Whether the words occur next to each other. The first test is cheap and rejects most memories."""
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
    """Whether the characters around a place belong to one word. Scripts without capitals have no spaces either."""
    if not 0 < place < len(text):
        return False
    point = place if text[place] == "." else place - 1 if text[place - 1] == "." else 0
    if point:
        return text[point - 1].isdigit() and text[point + 1 : point + 2].isdigit()
    return _in_word(text[place - 1]) and _in_word(text[place])


def _in_word(char: str) -> bool:
    return char.isdigit() or char.upper() != char.lower()
