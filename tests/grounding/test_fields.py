"""The values of JSON answers, and where a text says them."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.grounding.fields import Field, Passage, fields, places, states


def said(value, text: str) -> list[str]:
    return [text[start:end] for start, end in places(Field(pointer="/x", value=value), Passage(text))]


def test_the_fields_of_an_answer_are_named_as_json_pointers() -> None:
    answer = {"a/b": [{"c~d": 1, "no": None}, "two"], "empty": "", "right": False}
    known = [("/a~1b/0/c~0d", 1), ("/a~1b/1", "two"), ("/right", False)]
    assert [(one.pointer, one.value) for one in fields(answer)] == known
    assert [str(one) for one in fields(12.5)] == ["12.5"]
    assert (fields(None), fields({}), fields([{}, []])) == ([], [], [])


@pytest.mark.parametrize(
    ("value", "text", "found"),
    [
        (12500, "EUR 12,500.00, 12.500,00, 12500, 12 500, 12'500", ["12,500.00", "12.500,00", "12500", "12 500", "12'500"]),
        (500, "12 500 EUR, 12'500 CHF, 12,500", []),
        (15, "1,5 kg", []),
        (1250, "EUR 12,50", []),
        (34, "paragraphs 3,4", []),
        (20, "10-20 days", ["20"]),
        (2024, "2024/25", ["2024"]),
        (12500, "12.5 thousand, not 12.5 or 112,500 or 12,500.5", ["12.5"]),
        (1.5, "1.500 kg or 1,5 kg", ["1.500", "1,5"]),
        (1500, "1.500 kg or 1,5 kg", ["1.500"]),
        (0.05, "5 % or 5 percent, not 5 parts", ["5", "5"]),
        (-3, "a loss of 3, (3.0)", ["3", "3.0"]),
        (3200000, "$ 3.2 million", ["3.2"]),
        ("Alder GmbH", "ALDER\n GmbH and Alder GmbHs", ["ALDER\n GmbH"]),
        ("30", "thirty (30) days, 300, 12,30", ["30"]),
        (True, "true", []),
        (3, "EUR 3 million; it begins on 3 March 2024, on 03.03.2024 or 2024-03-03", []),
        (3, "3 March 2024, and 3 instalments", ["3"]),
        (2024, "it begins on 3 March 2024", ["3 March 2024"]),
        (3000000, "EUR 3 million", ["3"]),
    ],
)
def test_values_are_found_as_people_write_them(value, text, found) -> None:
    assert said(value, text) == found


DAYS = "1 March 2024; March 1, 2024; the 1st day of March, 2024; Mar. 1 2024; 2024-03-01; 01.03.2024; 3/1/2024; 1/3/2024"


def test_dates_are_found_as_people_write_them() -> None:
    assert said("2024-03-01", DAYS) == [one.strip().removeprefix("the ") for one in sorted(DAYS.split(";"), key=_form)]
    assert said("2024-03-02", DAYS) == said("2024-04-01", DAYS) == said("2023-03-01", DAYS) == []
    assert said("2024-03-01", "11 March 2024, March 11, 2024, March 1, 20245, 12024-03-01") == []
    assert said("2024-09-05", "Sept. 5, 2024 and 5 Sep 2024") == ["5 Sep 2024", "Sept. 5, 2024"]
    assert said("2024-13-01", "2024-13-01") == ["2024-13-01"]  # no date: a word as it stands


def _form(text: str) -> int:
    """The order in which the forms are looked for: day first, month first, ISO, day first in numbers, month first."""
    text = text.strip()
    if not text[0].isdigit():
        return 0 if text.startswith("the") else 1
    if "March" in text:
        return 0
    return 2 if "-" in text else 4 if text.startswith("3/") else 3


@given(st.dates(min_value=date(1900, 1, 1)), st.sampled_from(["%d %B %Y", "%B %d, %Y", "%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y"]))
def test_any_date_is_found_in_any_form(day, form) -> None:
    written = day.strftime(form)
    assert written in said(day.isoformat(), f"It begins on {written}, as agreed.")


@given(st.integers(0, 10**12), st.sampled_from([",", "."]))
def test_any_whole_number_is_found_with_separators(number, mark) -> None:
    written = f"{number:,}".replace(",", mark)
    assert said(number, f"EUR {written} is due") == [written]


def stated(value, passage: str) -> bool:
    return states(Field(pointer="/x", value=value), Passage(passage))


def test_a_short_text_has_to_stand_there_and_a_longer_one_mostly() -> None:
    assert stated("Alder GmbH", "ALDER GMBH is the customer")
    assert stated("Alder-GmbH", "AlderGmbH is the customer")
    assert not stated("Alder GmbH", "Birch GmbH is the supplier.")
    assert not stated("N/A", "This is a lease.")
    assert stated("terminates after a written notice of ninety days", "ninety (90) days' written notice terminates it")
    assert not stated("terminates after a written notice of 60 days", "ninety (90) days' written notice terminates it")
    assert not stated("2024-03-01", "It begins on 2 March 2024.")
    assert not stated(True, "Any passage: only the turn that asked about it supports it.")


def test_values_that_say_nothing_are_no_fields() -> None:
    said = {"a": " ", "b": "**", "c": "\u200b", "d": "€", "e": "Not in the document.", "f": None}
    assert fields(said, "not in the document") == []
    assert [one.value for one in fields({"a": 0, "b": False, "c": "7"})] == [0, False, "7"]


def test_a_field_that_is_named_after_a_part_of_a_date_is_stated_by_it() -> None:
    for pointer, value, passage in (
        ("/day", 1, "on 1 March 2025"),
        ("/month", 3, "2025-03-01"),
        ("/year", 2025, "1.3.2025"),
    ):
        assert states(Field(pointer=pointer, value=value), Passage(passage))
    assert not states(Field(pointer="/days", value=2), Passage("on 1 March 2025"))
    assert states(Field(pointer="/revenue_bn", value=3.2), Passage("a revenue of 3.2 billion"))
    assert states(Field(pointer="/amount_mio", value=3), Passage("3 million"))
    assert not states(Field(pointer="/amount_minimum", value=3), Passage("3 million"))


def test_a_field_that_is_named_after_a_scale_counts_in_it() -> None:
    passage = Passage("The deposit is EUR 3 million.")
    assert states(Field(pointer="/deposit_in_million_eur", value=3), passage)
    assert not states(Field(pointer="/deposit_eur", value=3), passage)
    assert not states(Field(pointer="/deposit_in_thousand_eur", value=3), passage)
