"""The fields of an answer that is JSON, and where a text says what they say.

A value is written in a document as people write it: 12500 as "12,500.00" or "12.5 thousand", 2025-03-01 as "1 March 2025".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from memagent.grounding.claims import held
from memagent.grounding.normal import NUMBER, whole

Value: TypeAlias = str | int | float | bool

_MONTHS = "january february march april may june july august september october november december".split()
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALE = re.compile(rf"\s*({'|'.join(_SCALES)})\b", re.IGNORECASE)
_PERCENT = re.compile(r"\s*(?:%|per\s?cent\b)", re.IGNORECASE)
_ISO = re.compile(r"\d{4}-\d\d-\d\d")
_THOUSANDS = re.compile(r"\d{1,3}(?:[.,]\d{3})+")


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


def fields(answer: Any) -> list[Field]:
    """The values of an answer, in order; null and "" say nothing and are left out."""
    return list(_fields(answer, ""))


def _fields(value: Any, pointer: str) -> Iterator[Field]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _fields(item, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _fields(item, f"{pointer}/{number}")
    elif value is not None and value != "":
        yield Field(pointer=pointer, value=value)


def places(field: Field, text: str) -> Iterator[tuple[int, int]]:
    """The characters [start, end) of a text that say the value of a field. true and false are not said so."""
    if isinstance(field.value, bool):
        return
    if isinstance(field.value, str):
        patterns = _dates(field.value) or [whole(field.value.strip(), loose=True)] if field.value.strip() else []
        for pattern in patterns:
            yield from (match.span() for match in pattern.finditer(text))
        return
    sought = _decimal(str(abs(field.value)))  # a sign is said in many ways: −3, (3), a loss of 3
    for match in NUMBER.finditer(text):
        if sought is not None and sought in _numbers(match[0], text[match.end() : match.end() + 20]):
            yield match.span()


def states(field: Field, passage: str) -> bool:
    """Whether a passage that was cited for a field says its value: word for word, or, of a longer text, most of it."""
    if isinstance(field.value, bool) or next(places(field, passage), None) is not None:
        return True
    return isinstance(field.value, str) and not _dates(field.value) and held(field.value, [passage])


def _numbers(written: str, after: str) -> set[Decimal]:
    """What a written number may mean: 1.500 is one and a half or fifteen hundred, with what stands after it."""
    readings = {written.replace(",", "")}
    if _THOUSANDS.fullmatch(re.sub(r"[.,]\d{1,2}$", "", written)) or "," in written:
        readings.add(written.replace(".", "").replace(",", "."))
    if _THOUSANDS.fullmatch(written):
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


def _dates(value: str) -> list[re.Pattern[str]]:
    """Patterns for the ways in which an ISO date is written; [] if the value is none."""
    try:
        day = date.fromisoformat(value.strip()) if _ISO.fullmatch(value.strip()) else None
    except ValueError:
        day = None
    if day is None:
        return []
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
