"""The fields of an answer that is JSON, and where a text says what they say.

A value is written in a document as people write it: 12500 as "12,500.00" or "12.5 thousand", 2025-03-01 as "1 March 2025".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeAlias

from memagent.core.outcomes import says
from memagent.grounding.claims import held, units
from memagent.grounding.normal import normal, whole
from memagent.grounding.quantities import MONTHS, at, dates, decimal, numbers, scaled

Value: TypeAlias = str | int | float | bool

_SHORT = 5  # words of a text that has to stand in a passage as it is; of a longer one, half of the words do
# Names of fields that count in a scale: deposit_in_million, revenue_bn, amount_mio.
_IN_SCALE = {
    "thousand": re.compile(r"thousand|(?:^|[^a-z])(?:k|tsd)(?:$|[^a-z])"),
    "million": re.compile(r"million|(?:^|[^a-z])(?:mn?|mio)(?:$|[^a-z])"),
    "billion": re.compile(r"billion|(?:^|[^a-z])(?:bn|mrd)(?:$|[^a-z])"),
    "trillion": re.compile(r"trillion|(?:^|[^a-z])tn(?:$|[^a-z])"),
}
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
        """The numbers that the text may mean, and where they stand. Of a date, only the year is one."""
        found: dict[Decimal, list[tuple[int, int]]] = {}
        for span, values in numbers(self.text):
            for value in () if at(self.dates, span) else values:
                found.setdefault(value, []).append(span)
        for span, days in self.dates:
            for year in {day.year for day in days}:
                found.setdefault(Decimal(year), []).append(span)
        return found

    @cached_property
    def dates(self) -> list[tuple[tuple[int, int], frozenset[date]]]:
        """The dates of the text, and where they stand."""
        return list(dates(self.text))

    @cached_property
    def scaled(self) -> dict[tuple[Decimal, str], list[tuple[int, int]]]:
        """The numbers that a scale word follows, as they are written, by number and word: (3, "million")."""
        found: dict[tuple[Decimal, str], list[tuple[int, int]]] = {}
        for span, number, scale in scaled(self.text):
            found.setdefault((number, scale), []).append(span)
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
        number = decimal(str(abs(one.value)))  # a sign is said in many ways: −3, (3), a loss of 3
        if number is not None:
            yield from passage.numbers.get(number, ())
            name = one.pointer.rpartition("/")[2].lower()
            for scale in (scale for scale, names in _IN_SCALE.items() if names.search(name)):  # /deposit_in_million: 3
                yield from passage.scaled.get((number, scale), ())
            for part in (part for part in ("day", "month") if part in name):  # of a date
                yield from (span for span, days in passage.dates if any(getattr(day, part) == number for day in days))
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


def _day(value: str) -> date | None:
    try:
        return date.fromisoformat(value.strip()) if _ISO.fullmatch(value.strip()) else None
    except ValueError:
        return None


def _written(day: date) -> list[re.Pattern[str]]:
    """Patterns for the ways in which a date is written (English). Day and month in numbers may be either way round."""
    name = MONTHS[day.month - 1]
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
