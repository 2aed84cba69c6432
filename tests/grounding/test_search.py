"""Verification without a model: sentences that hold the words of the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memagent
from memagent.core import LineOrigin, Span
from memagent.grounding.search import sentence, verdict_by_search


def verdict(answer: str, text: str, *origins: LineOrigin):
    whole = LineOrigin(line="", turn=0, spans=(Span(start=0, end=len(text)),))
    return verdict_by_search(answer, origins or [whole], memagent.from_text(text))


@pytest.mark.parametrize(
    ("answer", "text", "found"),
    [
        ("no", "I know nothing.", None),
        ("no", "They said no.", "They said no."),
        ("21", "The code is 4821973.", None),
        ("500", "It is EUR 12,500.00.", None),
        (
            "New York City",
            "Nobody came. It was in New\nYork  City, they say. All left.",
            "It was in New\nYork  City, they say.",
        ),
        ("東京", "私は東京にいます", "私は東京にいます"),
        ("4821973", "「好！」我们去公园。密码是4821973。东京是日本的首都。", "密码是4821973。"),
        ("$5", "it cost $5, then", "it cost $5, then"),
        ("ahab", "Captain Ahab", "Captain Ahab"),
        ("4821973.", "The code is 4821973. The end.", "The code is 4821973."),
        ("x", "x", None),
        ("7", "A week has 7 days.", "A week has 7 days."),
        ("7", "It is 7.5 or 17.", None),
    ],
)
def test_whole_words_are_looked_for_and_their_sentence_is_the_quote(answer: str, text: str, found: str | None) -> None:
    made = verdict(answer, text)
    assert [quote.cited_text for quote in made.quotes] == ([] if found is None else [found])
    assert all(text[one.start_char_index : one.end_char_index] == one.cited_text for one in made.quotes)
    assert made.status == ("unsupported" if found is None else "supported")
    assert {one.alignment for one in made.quotes} <= {"search"}


def test_lines_that_hold_the_words_are_followed_first() -> None:
    text = "Alpha 77 here. " + "x " * 200 + "Beta 77 there."
    first = LineOrigin(line="alpha noted", turn=1, spans=(Span(start=0, end=20),))
    second = LineOrigin(line="beta is 77", turn=5, spans=(Span(start=300, end=len(text)),))
    [quote] = verdict("77", text, first, second).quotes
    assert quote.cited_text.endswith("Beta 77 there.")
    assert quote.turn == 5


def test_each_item_of_a_list_has_its_sentence_and_what_is_nowhere_is_named() -> None:
    text = "Alpha is 111. " + "Nothing here. " * 50 + "Beta is 222."
    made = verdict("222, 111, and 333", text)
    assert [quote.cited_text for quote in made.quotes] == ["Alpha is 111.", "Beta is 222."]
    assert (made.status, made.unsupported) == ("partly", ("333",))


def test_an_answer_from_nowhere_has_no_quote() -> None:
    made = verdict("invented", "The code is 4821973.")
    assert (made.status, made.quotes, made.unsupported) == ("unsupported", (), ("invented",))
    assert verdict("4821973", "The code is 4821973.", LineOrigin(line="4821973", turn=0)).status == "unsupported"


@given(st.text(alphabet="ab. \n!?", max_size=900), st.integers(0, 899), st.integers(0, 40))
def test_a_sentence_holds_the_words_and_is_short(content: str, start: int, length: int) -> None:
    start, end = min(start, len(content)), min(start + length, len(content))
    first, last = sentence(content, start, end)
    assert 0 <= first <= start <= end <= last <= len(content)
    assert last - first <= end - start + 2 * 240
