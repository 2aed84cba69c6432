"""Answers that name one of several things: a choice, a label, a name, or that there is nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from memagent.scoring import strict
from memagent.suite_scoring.meta import needed

# How answers say that a document does not hold the answer: LoCoMo's and QASPER's words, memagent's own, and some more.
ABSTENTIONS = (
    "no information", "not mentioned", "unanswerable", "not in the document", "not enough information", "not provided",
    "insufficient information", "did not mention", "didn't mention", "does not mention", "doesn't mention",
    "cannot be answered", "cannot answer", "can't answer", "do not know", "don't know",
)  # fmt: skip
_CHOSEN = re.compile(r"(?:(?:answer|option|choice)(?: to [^.:\n]{1,40})? is|\bis:|answer:)[\s:*`\"'(]*", re.IGNORECASE)
_LETTER = re.compile(r"[(*]*([A-Z])(?:[).:,*`\"']|[ \t]*$)", re.MULTILINE)
_BABILONG_END = re.compile(r"\.|<context>|<example>")


def choice(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """Multiple choice: 1 for an accepted letter, or for another accepted text such as that of the choice.

    It is what the answer begins with, or else what follows the first "answer is", "option is", "is:" or "answer:".
    """
    given = answer.strip(" \t\r\n:*`\"'")
    if letter := _LETTER.match(given):
        return float(letter.group(1) in accepted)
    if said := _CHOSEN.search(given):
        rest = given[said.end() :]
        return float(any(re.match(rf"{re.escape(one)}(?!\w)", rest) for one in accepted if one))
    return strict(given, accepted)


def babilong(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """BABILong: 1 if the first sentence names the accepted label, or all labels of a list, and no other label of the task.

    `labels` are the task's labels but for those that the question names.
    """
    labels = {str(label).lower() for label in needed(meta, "labels", list)}
    said = _BABILONG_END.split(answer.lower())[0]
    found = {label for label in labels if label in said}
    return float(any(found == _targets(one) for one in accepted))


def abstention(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """1 if the answer says that the text does not hold it, in one of the usual phrases, or equals an accepted one."""
    said = answer.lower().replace("\u2019", "'")
    return float(any(phrase in said for phrase in ABSTENTIONS)) or strict(answer, accepted)


def substring(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """NoLiMa: 1 if the answer contains an accepted one, in the same case."""
    return float(any(one in answer for one in accepted))


def word(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """InfiniteBench's retrieval: 1 if an accepted answer is a word of the answer, or words next to each other; any case."""
    given = f" {_plain_words(answer)} "
    return float(any(f" {words} " in given for words in map(_plain_words, accepted) if words))


def _targets(accepted: str) -> set[str]:
    """BABILong's lists are longer than three characters; "e,s" is one label, a way."""
    accepted = accepted.lower()
    return set(accepted.split(",")) if len(accepted) > 3 else {accepted}


def _plain_words(text: str) -> str:
    return " ".join(re.sub("[\n:\"'.,?!{}]", " ", text).upper().split())
