"""Oolong's rules for labels, dates, numbers and lists (arXiv 2511.02817)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from memagent.suite_scoring.meta import needed

_BOXED = re.compile(r"\\boxed\{+(?:\\text\{)?([^}]*)\}")
_COMPARISONS = ("more common", "less common", "same frequency")
_DATES = ("%Y-%m-%d", "%b %d, %Y", "%B %d, %Y", "%d %b %Y", "%d %B %Y", "%m/%d/%Y", "%Y/%m/%d", "%b %d %Y", "%B %d %Y")
_DATES_MOST = 40  # characters
_CLOSE = 0.75  # Oolong: the factor for each unit that a number is off
_FAR = 1000


def oolong(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """Oolong-synth: 1 if what follows the last colon is the accepted answer; a number that is off by n gets 0.75 to the n.

    `answer_type` is the file's. Dates are compared as dates, if they are written in one of the common ways.
    """
    kind = needed(meta, "answer_type", str)
    return max(_oolong(answer, one, kind) for one in accepted)


def oolong_real(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """Oolong-real: numbers as in `oolong`; of a list, the share of its items, if a list is given; otherwise 1 if equal in
    any case.

    The answer is what stands in `\\boxed{}`, or all of it if there is no such thing.
    """
    found = _BOXED.search(answer)
    given = (found.group(1) if found else answer).strip()
    return max(_oolong_real(given, one.strip()) for one in accepted) if given else 0.0


def _oolong(answer: str, gold: str, kind: str) -> float:
    if not (given := answer.strip()):
        return 0.0
    if given == gold:
        return 1.0
    given = _oolong_part(given)
    if given == gold:
        return 1.0
    if given in _COMPARISONS:
        return float(given in gold)
    if kind.endswith("NUMERIC"):
        return _closeness(given, gold)
    if kind.endswith("DATE"):
        return float((day := _date(given)) is not None and day == _date(gold))
    return 0.0


def _oolong_part(answer: str) -> str:
    """What Oolong takes for the answer: behind the last colon, or else all of a short reply, or its last word."""
    if ":" not in answer:
        return answer if len(answer) < 20 else answer.split()[-1]
    part = re.sub(r"[*\[\]]", "", answer.rpartition(":")[2].strip())
    if len(part) >= 20:
        return next((name for name in _COMPARISONS if name in part), part)
    return part


def _oolong_real(given: str, gold: str) -> float:
    if _integer(gold) is not None:
        return _closeness(given, gold)
    if "," in gold:
        wanted, items = ({item.strip() for item in text.split(",") if item.strip()} for text in (gold, given))
        return len(wanted & items) / len(wanted) if wanted and "," in given else 0.0
    return float(given.lower() == gold.lower())


def _closeness(given: str, gold: str) -> float:
    first, second = _integer(given), _integer(gold)
    if first is None or second is None:
        return 0.0
    return float(_CLOSE ** min(abs(first - second), _FAR))


def _integer(text: str) -> int | None:
    text = text.strip()
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,30}", text) else None


def _date(text: str) -> date | None:
    for form in _DATES if len(text) <= _DATES_MOST else ():
        try:
            return datetime.strptime(text.strip(" ."), form).date()
        except ValueError:
            continue
    return None
