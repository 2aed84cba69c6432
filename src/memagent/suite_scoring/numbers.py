"""InfiniteBench's numbers: the first, the last, or a list of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def first_number(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """InfiniteBench: 1 if the first number of the answer is an accepted one."""
    found = _NUMBER.search(answer)
    return float(found is not None and any(_same_number(found.group(), one) for one in accepted))


def last_number(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """InfiniteBench's Code.Run: 1 if the last word of the answer is an accepted number."""
    words = re.sub(r"[\n.`'\":]", " ", answer).split()
    return float(bool(words) and any(_same_number(words[-1], one, signed=True) for one in accepted))


def leading_numbers(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """InfiniteBench's Math.Calc: the share of the accepted list of numbers that the answer has right before an error."""
    given = _NUMBER.findall(answer)

    def over(one: str) -> float:
        wanted = _NUMBER.findall(one)
        right = 0
        while right < min(len(given), len(wanted)) and _same_number(given[right], wanted[right]):
            right += 1
        return right / len(wanted) if wanted else 0.0

    return max(map(over, accepted))


def _same_number(given: str, wanted: str, *, signed: bool = False) -> bool:
    """Whether two texts are the same number, or the same digits if the wanted ones begin with 0. Unless `signed`, a minus
    counts only where the wanted number has one."""
    wanted = wanted.strip()
    if not (_NUMBER.fullmatch(given) and _NUMBER.fullmatch(wanted)):
        return False
    if re.match("0[0-9]", wanted):
        return given == wanted
    return Decimal(given if signed or wanted.startswith("-") else given.lstrip("-")) == Decimal(wanted)
