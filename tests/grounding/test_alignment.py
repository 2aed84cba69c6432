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
FEE = "Under this Agreement the Customer pays a monthly fee of EUR 12,500.00 within thirty days of each invoice."
YEARS = "It covers the accounts of the years 2024–2026 and no other year or account."
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
    ],
)
def test_a_quote_is_what_the_source_says_there(quote: str, found: str, kind: str) -> None:
    [place] = align(quote, TEXT)
    assert SOURCE[place.start : place.end] == found
    assert (place.kind, place.score) == (kind, 100)


DATES = "This Agreement begins on 1 March 2024 and ends on\n28 February 2027"
NOTICE = "Either party may terminate this Agreement with ninety days' written notice"


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("Either side may terminate this Agreement with ninety days", NOTICE.partition("'")[0]),  # other words
        ("Either party can terminate this Agreement with ninety days' written notice", NOTICE),
        ("Any party may terminate this Agreement with ninety days' written notice", NOTICE),
        ("Either party may terminate this Agreement with ninety days' written award", NOTICE),
        ("Either party may terminate Agreement with ninety days' written notice", NOTICE),  # a word is missing
        ("Either party may terminate this Agreement with ninety written notice", NOTICE),
        ("Term. This begins on 1 March 2024 and ends on 28 February 2027", f"Term. {DATES}"),
        ("This Agreement begins on the 1 March 2024 and ends on 28 February 2027", DATES),  # a word too many
        ("Clause 1. Term. This Agreement begins on 1 March 2024 and ends on 28 February 2027", f"1. Term. {DATES}"),
        ("4. 契約期間は二〇二四年三月一日から三年間とする。以上", "4. 契約期間は二〇二四年三月一日から\n三年間とする。"),
    ],
)
def test_a_quote_with_a_wrong_word_begins_and_ends_where_the_source_does(quote: str, found: str) -> None:
    [place] = align(quote, TEXT)
    assert SOURCE[place.start : place.end] == found
    assert (place.kind, place.score < 100) == ("fuzzy", True)


@pytest.mark.parametrize(
    ("source", "quote", "found"),
    [
        (FEE, "Under this Agreement the Customer pays the monthly fee of EUR 12,500", None),  # not all of a number
        (FEE, "500.00 within thirty days of every invoice.", None),
        (FEE, "Under this Agreement the Customer pays the monthly fee of EUR 12,500.00", FEE.partition(" within")[0]),
        (FEE, "12,500.00 within thirty days of every invoice.", "12,500.00 within thirty days of each invoice."),
        (
            "It ends on 28 February 2027, unless it is renewed.",
            "It will end on 28 February 2027",
            "It ends on 28 February 2027",
        ),
        (
            "3.Either party may end this Agreement.",
            "Either party can end this Agreement",
            "Either party may end this Agreement",
        ),
        (
            "The fee is payable at the end of the month.5 The rest is free.",  # the number of a footnote
            "This fee is payable at the end of the month",
            "The fee is payable at the end of the month",
        ),
        (
            "As Art.12 of the Treaty requires, notice is given.",
            "12 of this Treaty requires, notice is given",
            "12 of the Treaty requires, notice is given",
        ),
        (YEARS, "It covers all accounts of the years 2024", "It covers the accounts of the years 2024"),  # two numbers
        (YEARS, "2026 and no further year or account", "2026 and no other year or account"),
    ],
)
def test_a_quote_with_a_wrong_word_has_whole_numbers(source: str, quote: str, found: str | None) -> None:
    places = align(quote, StringText(source))
    assert [source[place.start : place.end] for place in places] == ([] if found is None else [found])


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
    [place] = align("cat dog hen pig cow", StringText("cut dig hun peg caw"), threshold=70)  # no word agrees
    assert (place.start, place.end) == (0, 19)


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


def test_a_quote_of_too_many_characters_or_pieces_has_no_place() -> None:
    text = StringText("the sea " * 2000)
    longest = "the sea " * 1250  # 10,000 characters
    assert [(place.start, place.end) for place in align(longest, text)] == [(0, 9999)]
    assert align(longest + " ", text) == ()
    assert len(align("sea ... " * 20, text)) == 20
    assert align("sea ... " * 21, text) == ()


def test_hostile_quotes_take_bounded_time() -> None:
    text = StringText("a" * 300_000 + " " + "the " * 100_000)
    for quote, found in (
        ("the" + " " * 5000 + "end", []),
        ("the " * 2000, ["the " * 1999 + "the"]),
        ("the ... " * 20, ["the"] * 20),
        ("the ... " * 2000, []),
        ("(" * 1000 + "[" * 1000, []),
        ("\\" * 500, []),
        ("\u202ethe\x00 end", []),
        ("\u202ethe\u200b the", ["the the"]),
    ):
        assert [text.text[place.start : place.end] for place in align(quote, text)] == found
    [place] = align("a" * 5000, text)
    assert set(text.text[place.start : place.end]) == {"a"}
