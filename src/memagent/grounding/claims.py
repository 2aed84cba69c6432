"""What an answer claims, item by item, and whether passages hold it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memagent.grounding.normal import BULLET, WORD, normal, whole, wide
from memagent.grounding.quantities import Quantities, quantities

_HELD = 0.5  # share of the words of a claim that the passages have to hold
_SHORT = 4  # words of an item of a list that stands on one line
_AFFIRMED = frozenset({"yes", "true"})
_VERDICTS = _AFFIRMED | {"no", "false"}  # a claim about the question: it has no words of its own to look for
_FILLING = 3  # characters of words such as "is" and "the", which tell little of a question
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^\W\d_a-z])|(?<=[。！？])\s*(?![」』）])")
_ITEM = re.compile(r"\s*[;、]\s*|\s*,\s+(?:and\s+|or\s+)?|\s+and\s+")


def claims(answer: str) -> tuple[str, ...]:
    """The items of an answer: its lines, sentences, or the short items of a list; else the answer itself."""
    lines = [BULLET.sub("", line).strip() for line in answer.splitlines()]
    parts = [part.strip() for line in lines for part in _SENTENCE.split(line) if part.strip()]
    if len(parts) == 1:
        items = [item.strip(" .") for item in _ITEM.split(parts[0]) if item.strip(" .")]
        if len(items) > 1 and all(len(item.split()) <= _SHORT for item in items):
            parts = items
    return tuple(dict.fromkeys(part for part in parts if WORD.search(part)))


def held(claim: str, passages: Sequence[str], question: str = "") -> bool:
    """Whether passages hold a claim: all of its numbers, and at least half of its other words that are not the question's.

    Numbers and dates are compared by what they mean, words as they are. A claim without such words answers the question:
    "no" is held by passages with half of its words, "yes" by those that have its numbers as well.
    """
    if not passages:
        return False
    level, known = normal(claim).text, [normal(passage).text for passage in passages]
    there, own = Quantities.of(known), quantities(level)
    if not all(map(there.hold, own)):
        return False
    if any(whole(level).search(text) for text in known):
        return True
    for one in own:
        level = level.replace(one.written, " ") if one.days else level  # a month is no other word
    said, words = units(level), {word for passage in passages for word in units(passage)}
    if said and said <= _VERDICTS:
        sought = {word for word in units(question) if len(word) > _FILLING} or units(question)
        asked = quantities(normal(question).text) if said & _AFFIRMED else []
        return all(map(there.hold, asked)) and len(sought & words) >= _HELD * len(sought)
    sought = said - units(question) - _VERDICTS or said - _VERDICTS
    return len(sought & words) >= _HELD * len(sought)


def touches(answer: str, passage: str, question: str = "") -> bool:
    """Whether a passage shares a number or word with an answer, those of the question apart, if the answer has any."""
    own, there = quantities(normal(answer).text), Quantities.of([normal(passage).text])
    words = units(answer) - units(question) - _VERDICTS
    return bool(words & units(passage)) or any(map(there.hold, own)) or not (words or own)


def units(text: str) -> set[str]:
    """The levelled words of a text without its numbers; of a script that is written without spaces, pairs of characters."""
    found: set[str] = set()
    for word in WORD.findall(normal(text).text):
        if wide(word[0]):
            found.update(word[at : at + 2] for at in range(max(1, len(word) - 1)))
        elif not word.isdigit():
            found.add(word)
    return found
