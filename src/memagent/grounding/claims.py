"""What an answer claims, item by item, and whether passages hold it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memagent.grounding.normal import BULLET, NUMBER, WORD, normal, whole, wide

_HELD = 0.5  # share of the words of a claim that the passages have to hold
_SHORT = 4  # words of an item of a list that stands on one line
_VERDICTS = frozenset({"yes", "no", "true", "false"})  # a claim about the question: it has no words to look for
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

    A claim without such words ("yes") is held by any passage. The words are compared, not what they mean.
    """
    if not passages:
        return False
    level, known = normal(claim).text, [normal(passage).text for passage in passages]
    if any(whole(level).search(text) for text in known):
        return True
    numbers = {number for text in known for number in NUMBER.findall(text)}
    if not set(NUMBER.findall(level)) <= numbers:
        return False
    words = units(claim) - units(question) - _VERDICTS or units(claim) - _VERDICTS
    there = words & {word for passage in passages for word in units(passage)}
    return len(there) >= _HELD * len(words)


def touches(answer: str, passage: str, question: str = "") -> bool:
    """Whether a passage shares a number or word with an answer, those of the question apart, if the answer has any."""
    numbers = set(NUMBER.findall(normal(answer).text))
    words = units(answer) - units(question) - _VERDICTS
    shared = (words & units(passage)) | (numbers & set(NUMBER.findall(normal(passage).text)))
    return bool(shared) or not words | numbers


def units(text: str) -> set[str]:
    """The levelled words of a text without its numbers; of a script that is written without spaces, pairs of characters."""
    found: set[str] = set()
    for word in WORD.findall(normal(text).text):
        if wide(word[0]):
            found.update(word[at : at + 2] for at in range(max(1, len(word) - 1)))
        elif not word.isdigit():
            found.add(word)
    return found
