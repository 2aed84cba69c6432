"""Numbers and dates in a text, in the ways in which people write them.

12500 is also "12,500.00", "12 500" and "12.5 thousand"; 1 March 2025 is also "March 1st, 2025", "2025-03-01" and
"1/3/2025".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation

from memagent.grounding import normal

SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
MONTHS = "january february march april may june july august september october november december".split()
_SCALE = re.compile(rf"\s*({'|'.join(SCALES)})\b", re.IGNORECASE)
_PERCENT = re.compile(r"\s*(?:%|per\s?cent\b)", re.IGNORECASE)
_GAP = "\u0020\u00a0\u2009\u202f'’"  # may stand between groups of three digits
NUMBER = re.compile(rf"(?<![\d.,])(?:\d{{1,3}}(?:[{_GAP}]\d{{3}})+|\d+)(?:[.,]\d+)*(?!\d)")
_WRITTEN = re.compile(rf"(?<![\d.,])\d{{1,3}}(?:[{_GAP}]\d{{3}})+(?:[.,]\d+)*(?![\d:/-])|{normal.NUMBER.pattern}")
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
    """A number or a date of a text, as it is `written` there and what it may mean. `scale` is the word after a number, such
    as "million", and `parts` are the numbers in a date. 10:30 or 4.5.1 mean nothing but themselves."""

    written: str
    scale: str = ""
    values: frozenset[Decimal] = frozenset()
    days: frozenset[date] = frozenset()
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantities:
    """The numbers and dates of texts, to look others up in."""

    written: set[tuple[str, str]] = field(default_factory=set)
    values: set[Decimal] = field(default_factory=set)
    days: set[date] = field(default_factory=set)

    @classmethod
    def of(cls, levels: Iterable[str]) -> Quantities:
        """Those of levelled texts. The numbers in a date count as numbers, too."""
        found = cls()
        for level in levels:
            for pattern in (_WRITTEN, normal.NUMBER):
                found.written.update((match[0], _scale(level, match.end())) for match in pattern.finditer(level))
            found.values.update(value for _, values in numbers(level) for value in values)
            found.days.update(day for _, days in dates(level) for day in days)
        return found

    def hold(self, one: Quantity) -> bool:
        """Whether it stands in the texts: written alike, or with the same meaning."""
        if one.days:
            return bool(one.days & self.days) or all((part, "") in self.written for part in one.parts)
        return (one.written, one.scale) in self.written or bool(one.values & self.values)


def quantities(level: str) -> list[Quantity]:
    """The numbers and dates of a levelled text."""
    whole_dates, found = list(dates(level)), list[Quantity]()
    for (start, end), days in whole_dates:
        written = level[start:end]
        found.append(Quantity(written=written, days=days, parts=tuple(normal.NUMBER.findall(written))))
    meant = dict(numbers(level))
    for match in _WRITTEN.finditer(level):
        if not any(start <= match.start() < end for (start, end), _ in whole_dates):
            values = meant.get(match.span(), frozenset())
            found.append(Quantity(written=match[0], scale=_scale(level, match.end()), values=values))
    return found


def dates(text: str) -> Iterator[tuple[tuple[int, int], frozenset[date]]]:
    """The dates of a text with a year of four digits: the characters of each, and the days that it may mean. Day and month
    in numbers may be either way round."""
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


def numbers(text: str) -> Iterator[tuple[tuple[int, int], frozenset[Decimal]]]:
    """The numbers of a text: the characters of each, and what it may mean. With a scale word after it, that is so many
    times more and not itself: "3 million" is not 3."""
    for match in NUMBER.finditer(text):
        found, scale = readings(match[0]), _scale(text, match.end())
        if scale:
            found = {number * SCALES[scale] for number in found}
        if _PERCENT.match(text, match.end()):
            found |= {number / 100 for number in found}
        yield match.span(), frozenset(found)


def scaled(text: str) -> Iterator[tuple[tuple[int, int], Decimal, str]]:
    """The numbers that a scale word follows, as they are written: the characters of each, the number and the word."""
    for match in NUMBER.finditer(text):
        if scale := _scale(text, match.end()):
            yield from ((match.span(), number, scale) for number in readings(match[0]))


def _scale(text: str, end: int) -> str:
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


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
