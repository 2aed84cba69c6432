"""Numbers and dates in a text, in the ways in which people write them.

12500 is also "12,500.00", "12 500" and "12.5 thousand"; 1 March 2025 is also "March 1st, 2025", "2025-03-01" and
"1/3/2025".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import TypeAlias, TypeVar

from memagent.grounding import normal

Place: TypeAlias = tuple[int, int]
T = TypeVar("T")

SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
MONTHS = "january february march april may june july august september october november december".split()
_SCALE = re.compile(rf"[\s-]{{0,3}}({'|'.join(SCALES)})s?\b", re.IGNORECASE)
_SHORT_SCALES = {"k": 10**3, "m": 10**6, "mn": 10**6, "mio": 10**6, "bn": 10**9, "tn": 10**12}  # or metres, or others
_SHORT_SCALE = re.compile(rf"\s?({'|'.join(sorted(_SHORT_SCALES, key=len, reverse=True))})\b", re.IGNORECASE)
_PERCENT = re.compile(r"\s*(?:%|per\s?cent\b)", re.IGNORECASE)
_GAP = "\u0020\u00a0\u2009\u202f'’"  # may stand between groups of three digits
_NUMBER = re.compile(rf"(?<![\d.,])(?:\d{{1,3}}(?:[{_GAP}]\d{{3}})+|\d+)(?:[.,]\d+)*(?!\d)")
_GROUPS = re.compile(r"\d{1,3}(?:,\d{3})+|\d{1,3}(?:\.\d{3})+")
_MONTH = rf"(?P<month>{'|'.join(rf'{name[:3]}(?:{name[3:]})?' if name[3:] else name for name in MONTHS)}|sept)\.?"
_DATE = re.compile(
    rf"(?<![\w/])(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:day\s+of\s+|of\s+)?{_MONTH},?\s+(?P<year>\d{{4}})"
    rf"|{_MONTH.replace('month', 'month2')}\s+(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<year2>\d{{4}})"
    r"|(?P<year3>\d{4})(?P<mark>[-/.])(?P<one>\d{1,2})(?P=mark)(?P<two>\d{1,2})"
    r"|(?P<first>\d{1,2})(?P<mark2>[-/.])\s?(?P<second>\d{1,2})(?P=mark2)\s?(?P<year4>\d{4}))(?![\w/]|[.,-]\d)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number of a text, as it is `written` there and what it may mean. `scale` is the word after it, such as "million",
    and `days` is what the date may mean that it is part of. 10:30 or 4.5.1 mean nothing but themselves."""

    written: str
    scale: str = ""
    values: frozenset[Decimal] = frozenset()
    days: frozenset[date] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantities:
    """The numbers and dates of texts, to look others up in."""

    written: set[tuple[str, str]] = field(default_factory=set)
    values: set[tuple[Decimal, int]] = field(default_factory=set)
    days: set[date] = field(default_factory=set)
    scales: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, levels: Iterable[str]) -> Quantities:
        """Those of levelled texts."""
        found = cls()
        for level in levels:
            found.written.update((match[0], scale_after(level, match.end())) for match in normal.NUMBER.finditer(level))
            found.values.update(_exact(value) for _, values in numbers(level) for value in values)
            found.days.update(day for _, days in dates(level) for day in days)
            found.scales.update(scale for scale in SCALES if scale in level)
        return found

    def hold(self, one: Quantity, about: str = "") -> bool:
        """Whether a number stands in the texts: written alike, or with the same meaning. A scale word belongs to it: 3 is
        not "3 million", unless the text that it stands in is `about` millions ("2 to 3 million"), or its question is; and
        "3 million" may be 3 in a table of millions."""
        if one.days & self.days or any(_exact(value) in self.values for value in one.values):
            return True
        if (one.written, one.scale) in self.written:
            return True
        if one.scale:
            return one.scale in self.scales and (one.written, "") in self.written
        return any((one.written, scale) in self.written for scale in SCALES if scale in about)


def quantities(level: str) -> list[Quantity]:
    """The numbers of a levelled text, those in its dates too."""
    days, meant = list(dates(level)), list(numbers(level))
    found = []
    for match in normal.NUMBER.finditer(level):
        scale = scale_after(level, match.end())
        found.append(Quantity(written=match[0], scale=scale, values=at(meant, match.span()), days=at(days, match.span())))
    return found


def dates(text: str) -> Iterator[tuple[Place, frozenset[date]]]:
    """The dates of a text with a year of four digits, in order: the characters of each, and the days that it may mean. Day
    and month in numbers may be either way round."""
    for match in _DATE.finditer(text):
        of = match.groupdict()
        if of["year3"]:
            parts = [(of["year3"], of["one"], of["two"])]
        elif of["year4"]:
            parts = [(of["year4"], of["first"], of["second"]), (of["year4"], of["second"], of["first"])]
        else:
            name = (of["month"] or of["month2"])[:3].lower()
            month = next(number for number, one in enumerate(MONTHS, 1) if one.startswith(name))
            parts = [(of["year"] or of["year2"], month, of["day"] or of["day2"])]
        if days := frozenset(day for one in parts if (day := _day(*map(int, one)))):
            yield match.span(), days


def numbers(text: str) -> Iterator[tuple[Place, frozenset[Decimal]]]:
    """The numbers of a text, in order: the characters of each, and what it may mean. With a scale word after it, that is so
    many times more and not itself: "3 million" is not 3. "3m" may be both."""
    for match in _NUMBER.finditer(text):
        found = readings(match[0])
        if scale := scale_after(text, match.end()):
            found = {number * SCALES[scale] for number in found}
        elif short := _SHORT_SCALE.match(text, match.end()):
            found |= {number * _SHORT_SCALES[short[1].lower()] for number in found}
        if _PERCENT.match(text, match.end()):
            found |= {number / 100 for number in found}
        yield match.span(), frozenset(found)


def scaled(text: str) -> Iterator[tuple[Place, Decimal, str]]:
    """The numbers that a scale word follows, as they are written: the characters of each, the number and the word."""
    for match in _NUMBER.finditer(text):
        if scale := scale_after(text, match.end()):
            yield from ((match.span(), number, scale) for number in readings(match[0]))


def scale_after(text: str, end: int) -> str:
    """The scale word that stands after a number which ends there, or ""."""
    found = _SCALE.match(text, end)
    return found[1].lower() if found else ""


def readings(written: str) -> set[Decimal]:
    """What a written number may mean: 1.500 is one and a half or fifteen hundred."""
    written = re.sub(f"[{_GAP}]", "", written)
    found = {written}
    for point, mark in ((".", ","), (",", ".")):  # which of them separates the decimals
        head, _, tail = written.partition(point)
        if mark not in tail and (mark not in head or _GROUPS.fullmatch(head)):
            found.add(f"{head.replace(mark, '')}.{tail or 0}")
    if _GROUPS.fullmatch(written):
        found.add(re.sub("[.,]", "", written))
    return {number for number in map(decimal, found) if number is not None}


def decimal(text: str) -> Decimal | None:
    """The number, or None if it is none."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def at(found: Sequence[tuple[Place, frozenset[T]]], part: Place) -> frozenset[T]:
    """What is known of the one of these places, in order and apart, in which a part of the text lies; else nothing."""
    number = bisect_right(found, part[0], key=lambda one: one[0][0]) - 1
    return found[number][1] if number >= 0 and part[1] <= found[number][0][1] else frozenset()


def _exact(value: Decimal) -> tuple[Decimal, int]:
    """A number with as many decimals as it is written with, if it is no whole one: version 3.10 is not 3.1."""
    whole = value == value.to_integral_value()
    return value, 0 if whole else int(value.as_tuple().exponent)


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
