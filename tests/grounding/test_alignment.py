"""Quotes are found again where they stand, and what does not stand there is not found."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent.core.types import Span
from memagent.grounding import align
from memagent.tasks.haystack import Haystack
from tests.helpers import StringText

SOURCE = (
    "1. Term. This Agreement begins on 1 March 2024 and ends on\n28 February 2027, unless it is termi-\nnated earlier.\n"
    "2. Fees. The Customer pays “a monthly fee” of EUR 12,500.00 within thirty (30) days—no later.\n"
    "3. Notice. Either party may terminate this Agreement with ninety days' written notice.\n"
    "4. 契約期間は二〇二四年三月一日から\n三年間とする。\n"
)
TEXT = StringText(SOURCE)
BOOK = Haystack.shipped().text


def quoted(quote: str, **options) -> list[str]:
    return [SOURCE[place.start : place.end] for place in align(quote, TEXT, **options)]


@pytest.mark.parametrize(
    ("quote", "found", "kind"),
    [
        ("Either party may terminate this Agreement", "Either party may terminate this Agreement", "exact"),
        ("EITHER PARTY may terminate this agreement", "Either party may terminate this Agreement", "normalized"),
        ("ends on 28 February 2027", "ends on\n28 February 2027", "normalized"),
        ("unless it is terminated earlier", "unless it is termi-\nnated earlier", "normalized"),
        ('pays "a monthly fee" of EUR 12,500.00', "pays “a monthly fee” of EUR 12,500.00", "normalized"),
        ("thirty (30) days -- no later", "thirty (30) days—no later", "normalized"),
        ('"ninety days\' written notice"', "ninety days' written notice", "normalized"),
        ("契約期間は二〇二四年三月一日から三年間とする", "契約期間は二〇二四年三月一日から\n三年間とする", "normalized"),
        ("Either side may terminate this Agreement with ninety days", None, "fuzzy"),
        ("Either party can terminate this Agreement with ninety days' written notice", None, "fuzzy"),
    ],
)
def test_a_quote_is_what_the_source_says_there(quote: str, found: str | None, kind: str) -> None:
    [place] = align(quote, TEXT)
    assert place.kind == kind
    assert (place.score == 100) == (kind != "fuzzy")
    if found is not None:
        assert SOURCE[place.start : place.end] == found
    else:
        assert SOURCE[place.start : place.end].startswith("Either party may terminate this Agreement with ninety days")


@pytest.mark.parametrize(
    "quote",
    [
        "",
        "   ",
        "…",
        "—",
        "The Supplier grants a licence to use the software",
        "The Customer pays a monthly fee of EUR 12,600.00 within thirty (30) days",  # another number
        "ends on 28 February 2028, unless it is terminated earlier",
        "party may terminate this Agreement with ninety days' written notice ... Either party",  # in another order
        "Either party may terminate ... whenever it likes to do so",  # a piece that is not there
        "ermin",  # a part of a word
        "500.00",  # a part of a number
        "12,500",
        "no lat",
        "Custom",  # a part of "Customer"
    ],
)
def test_what_does_not_stand_there_has_no_place(quote: str) -> None:
    assert quoted(quote) == []


def test_words_are_left_out_with_an_ellipsis() -> None:
    for dots in ("...", "…", " [...] ", " (…) ", " . . . "):
        assert quoted(f"This Agreement begins on 1 March 2024{dots}unless it is terminated earlier") == [
            "This Agreement begins on 1 March 2024",
            "unless it is termi-\nnated earlier",
        ]
    assert quoted("...Either party may terminate...") == ["Either party may terminate"]


def test_only_the_given_parts_of_a_text_are_looked_in() -> None:
    notice = SOURCE.index("3. Notice")
    assert quoted("Either party may", spans=[Span(start=0, end=notice)]) == []
    assert quoted("Either party may", spans=[Span(start=notice, end=len(SOURCE))]) == ["Either party may"]
    assert quoted("Either party may", spans=[]) == []


def test_a_passage_may_run_over_the_border_of_two_chunks() -> None:
    border = SOURCE.index("terminate this")
    spans = [Span(start=0, end=border), Span(start=border, end=len(SOURCE))]
    assert quoted("Either party may terminate this Agreement", spans=spans) == ["Either party may terminate this Agreement"]


def test_the_threshold_says_how_much_must_agree() -> None:
    nearly = "Either company can terminate the Agreement with ninety days' written notice"
    assert align(nearly, TEXT, threshold=99) == ()
    [place] = align(nearly, TEXT, threshold=70)
    assert 70 <= place.score < 99


@settings(deadline=None)
@given(st.integers(0, len(BOOK) - 500), st.integers(30, 400))
def test_a_passage_of_a_book_is_found_exactly_where_it_says_the_same(start: int, length: int) -> None:
    passage = BOOK[start : start + length].strip()
    inner = passage[passage.find(" ") + 1 : passage.rfind(" ")].strip()
    if len(inner) < 20 or "..." in inner:
        return
    [place] = align(inner, StringText(BOOK))
    assert BOOK[place.start : place.end] == inner


def test_a_passage_is_found_in_a_long_text_though_a_word_is_wrong() -> None:
    rng, text = random.Random(5), StringText(BOOK)
    for _ in range(20):
        start = rng.randrange(len(BOOK) - 1000)
        words = BOOK[start : start + 300].split()[1:-1]
        place = rng.randrange(1, len(words) - 1)
        wrong = " ".join([*words[:place], "otherwise", *words[place + 1 :]])
        if any(char.isdigit() for char in wrong):
            continue
        [found] = align(wrong, text)
        assert abs(found.start - start) < 40
        assert found.kind == "fuzzy"


def test_a_passage_of_frequent_words_is_found_in_a_long_text() -> None:
    text = StringText(
        "of the party to the other\n" * 3000 + "and of\nthe one party to it. " + "to it of the party and the one\n" * 3000
    )
    [place] = align("of the one party to it", text)
    assert text.text[place.start : place.end] == "of\nthe one party to it"
    assert align("the one of party to the it", text) == ()


def test_hostile_quotes_take_bounded_time() -> None:
    text = StringText("a" * 300_000 + " " + "the " * 100_000)
    for quote in (
        "the" + " " * 5000 + "end",
        "the " * 2000,
        "a" * 5000,
        "the ... " * 2000,
        "(" * 1000 + "[" * 1000,
        "\\" * 500,
        "\u202ethe\x00 end",
    ):
        align(quote, text)
