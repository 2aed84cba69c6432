"""What an answer claims, item by item, and whether passages hold it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memagent.grounding.normal import BULLET, WORD, normal, whole, wide
from memagent.grounding.quantities import SCALES, Quantities, dates, quantities, scale_after

_HELD = 0.5  # share of the words of a claim that the passages have to hold
_SHORT = 4  # words of an item of a list that stands on one line
_AFFIRMED = frozenset({"yes", "true"})
_VERDICTS = _AFFIRMED | {"no", "false"}  # a claim about the question: it has no words of its own to look for
_FILLING = 3  # characters of words such as "is" and "the", which tell little of a question
_COMMON = frozenset("does have with this that what when which from there were been will would could should into".split())
_COMPARING = frozenset(
    "than more less fewer over under above below before after until least most exceed exceeds within between older younger"
    " earlier later longer shorter higher lower greater smaller".split()
)
_AROUND = frozenset(
    "and or between on in at by of to from since until till the a an is was it for about around am vom seit ab".split()
)
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
    """Whether passages hold a claim: as it is, or all of its numbers, and at least half of its other words that are not the
    question's.

    Numbers and dates are compared by what they mean, words as they are. A claim without such words answers the question:
    "yes" and "no" are held by a passage that shares a word with it, and its numbers, unless it compares with them.
    """
    if not passages:
        return False
    level, asked, known = normal(claim).text, normal(question).text, [normal(passage).text for passage in passages]
    if any(not _scaled_after(level, text, match) for text in known for match in whole(level).finditer(text)):
        return True
    there, own = Quantities.of(known), quantities(level)
    if not all(there.hold(one, f"{asked} {level}") for one in own):
        return False
    said, words = units(claim), {word for passage in passages for word in units(passage)}
    if said and said <= _VERDICTS:
        return _is_about(asked, words, there, affirmed=bool(said & _AFFIRMED))
    if own:  # what stands with a number or date tells nothing else
        said -= {word for word in said if word in _AROUND or word.removesuffix("s") in SCALES}
        said -= {word for start, end in (span for span, _ in dates(level)) for word in units(level[start:end])}
    sought = said - units(question) - _VERDICTS or said - _VERDICTS
    return len(sought & words) >= _HELD * len(sought)


def _scaled_after(level: str, text: str, match: re.Match[str]) -> bool:
    """Whether a number at the end of a claim has a scale word after it in a passage: EUR 3 is not "EUR 3 million"."""
    return level[-1:].isdigit() and bool(scale_after(text, match.end()))


def _is_about(question: str, words: set[str], there: Quantities, *, affirmed: bool) -> bool:
    """Whether passages with these words and numbers may answer a question with yes or no."""
    asked = units(question)
    telling = {word for word in asked if len(word) > _FILLING} - _COMMON or asked
    if affirmed and not asked & _COMPARING and not all(map(there.hold, quantities(question))):
        return False
    return bool(telling & words) or not telling


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
