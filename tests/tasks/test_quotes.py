"""Quotations are found at their exact places."""

from __future__ import annotations

import pytest

from memagent.tasks.quotes import Searched

TEXT = Searched("He said “no”. The  end\nof it. Sales — net: $ 4,100; sales 41 only, 410 not. The end of it.")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("He said", "He said"),
        ('"no"', "“no”"),
        ('said "no".', "said “no”."),
        (" The end\tof it! ", "The  end\nof it."),
        ("The end of it.", "The end of it."),
        ("Sales net $4,100", "Sales — net: $ 4,100"),
        ("sales 41", "sales 41"),
        ("(sales 41)", "sales 41"),
        ("—", "—"),
        ("ales — net: $ 4", "ales — net: $ 4"),
    ],
)
def test_a_quotation_is_found_whatever_its_marks_and_spaces(wanted: str, found: str) -> None:
    place = TEXT.find(wanted)
    assert place is not None
    assert TEXT.text[slice(*place)] == found


@pytest.mark.parametrize("wanted", ["another end", "al", "sales 4", "", "…", "es net"])
def test_what_is_not_there_as_whole_words_is_not_found(wanted: str) -> None:
    assert TEXT.find(wanted) is None


def test_a_search_can_be_kept_to_a_part() -> None:
    text = Searched("One page. | Two pages, one. | One page!")
    assert text.find("One page", 5) == (30, 38)
    assert text.find("one-page", 5, 30) is None
    assert text.find("Two  pages", 5, 30) == (12, 21)
    assert text.find("Two pages", 5, 18) is None
