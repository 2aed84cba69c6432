"""The fields of an answer that is JSON, and where a text says what they say.

A value is written in a document as people write it: 12500 as "12,500.00" or "12.5 thousand", 2025-03-01 as "1 March 2025".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any, TypeAlias

from memagent.core.outcomes import says
from memagent.grounding.claims import held, units
from memagent.grounding.normal import normal, whole

Value: TypeAlias = str | int | float | bool

_SHORT = 5  # words of a text that has to stand in a passage as it is; of a longer one, half of the words do
_MONTHS = "january february march april may june july august september october november december".split()
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALE = re.compile(rf"\s*({'|'.join(_SCALES)})\b", re.IGNORECASE)
_PERCENT = re.compile(r"\s*(?:%|per\s?cent\b)", re.IGNORECASE)
_GAP = "\u0020\u00a0\u2009\u202f'’"  # may stand between groups of three digits
_NUMBER = re.compile(rf"(?<![\d.,])(?:\d{{1,3}}(?:[{_GAP}]\d{{3}})+|\d+)(?:[.,]\d+)*(?!\d)")
_GROUPS = re.compile(r"\d{1,3}(?:,\d{3})+|\d{1,3}(?:\.\d{3})+")
_ISO = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A value of an answer, and its place there as a JSON Pointer (RFC 6901), such as /parties/0/name."""

    pointer: str
    value: Value

    @property
    def text(self) -> str:
        """The value as JSON has it, a string without its quotes."""
        if isinstance(self.value, bool):
            return "true" if self.value else "false"
        return str(self.value)

    def __str__(self) -> str:
        return f"{self.pointer}: {self.text}" if self.pointer else self.text


@dataclass(frozen=True)
class Passage:
    """A text in which values are looked for; what is worked out for one value serves the others."""

    text: str

    @cached_property
    def lower(self) -> str:
        return self.text.lower()

    @cached_property
    def level(self) -> str:
        return normal(self.text).text

    @cached_property
    def numbers(self) -> dict[Decimal, list[tuple[int, int]]]:
        """The numbers that the text may mean, and where they stand."""
        found: dict[Decimal, list[tuple[int, int]]] = {}
        for match in _NUMBER.finditer(self.text):
            for number in _meant(match[0], self.text[match.end() : match.end() + 20]):
                found.setdefault(number, []).append(match.span())
        return found


def fields(answer: Any, not_found: str = "") -> list[Field]:
    """The values of an answer, in order. Left out is what says nothing: null, texts without a letter or digit, and the
    fixed reply "not found"."""
    return [one for one in _fields(answer, "") if not isinstance(one.value, str) or _tells(one.value, not_found)]


def _tells(text: str, not_found: str) -> bool:
    return any(char.isalnum() for char in text) and not says(text, not_found)


def _fields(value: Any, pointer: str) -> Iterator[Field]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _fields(item, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _fields(item, f"{pointer}/{number}")
    elif value is not None:
        yield Field(pointer=pointer, value=value)


def places(one: Field, passage: Passage) -> Iterator[tuple[int, int]]:
    """The characters [start, end) of a text that say the value of a field. true and false are not said so."""
    if isinstance(one.value, bool):
        return
    if not isinstance(one.value, str):
        number = _decimal(str(abs(one.value)))  # a sign is said in many ways: −3, (3), a loss of 3
        yield from passage.numbers.get(number, ()) if number is not None else ()
        return
    if not one.value.strip():
        return
    day = _day(one.value)
    first = str(day.year) if day else one.value.split()[0].lower()
    if first not in passage.lower:  # a regular expression takes a thousand times as long
        return
    for pattern in _written(day) if day else [whole(one.value.strip(), loose=True)]:
        yield from (match.span() for match in pattern.finditer(passage.text))


def states(one: Field, passage: Passage) -> bool:
    """Whether a passage says the value of a field: as it is, or, of a text of more than five words, most of it."""
    if next(places(one, passage), None) is not None:
        return True
    if not isinstance(one.value, str) or _day(one.value) is not None:
        return False
    if len(one.value.split()) > _SHORT and units(one.value):
        return held(one.value, [passage.text])
    return whole(normal(one.value).text.strip() or one.value).search(passage.level) is not None


def _meant(written: str, after: str) -> set[Decimal]:
    """What a written number may mean: 1.500 is one and a half or fifteen hundred, with what stands after it."""
    written = re.sub(f"[{_GAP}]", "", written)
    readings = {written}
    for point, mark in ((".", ","), (",", ".")):  # which of them separates the decimals
        head, _, tail = written.partition(point)
        if mark not in tail and (mark not in head or _GROUPS.fullmatch(head)):
            readings.add(f"{head.replace(mark, '')}.{tail or 0}")
    if _GROUPS.fullmatch(written):
        readings.add(re.sub("[.,]", "", written))
    found = {number for number in map(_decimal, readings) if number is not None}
    if scale := _SCALE.match(after):
        found |= {number * _SCALES[scale[1].lower()] for number in found}
    if _PERCENT.match(after):
        found |= {number / 100 for number in found}
    return found


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _day(value: str) -> date | None:
    try:
        return date.fromisoformat(value.strip()) if _ISO.fullmatch(value.strip()) else None
    except ValueError:
        return None


def _written(day: date) -> list[re.Pattern[str]]:
    """Patterns for the ways in which a date is written (English). Day and month in numbers may be either way round."""
    name = _MONTHS[day.month - 1]
    month = rf"(?:{name}|{name[:3]}\.?|sept\.?)" if day.month == 9 else rf"(?:{name}|{name[:3]}\.?)"
    the_day, number, year = rf"0?{day.day}(?:st|nd|rd|th)?", rf"0?{day.month}", f"{day.year}"
    written = (
        rf"{the_day}\s+(?:day\s+of\s+)?{month},?\s+{year}",
        rf"{month}\s+{the_day},?\s+{year}",
        rf"{year}[-/.]{number}[-/.]0?{day.day}",
        rf"0?{day.day}[-/.]\s?{number}[-/.]\s?{year}",
        rf"{number}/0?{day.day}/{year}",
    )
    return [re.compile(rf"(?<!\w)(?<!\d[.,/-]){form}(?!\w)(?![.,/-]\d)", re.IGNORECASE) for form in written]
