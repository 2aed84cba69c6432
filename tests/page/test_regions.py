from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from memagent.core import Span
from memagent.page.regions import at_words, placed, regions
from tests.helpers import StringText

SIZES = st.integers(min_value=0, max_value=5_000)


@st.composite
def cases(draw):
    """A size, a limit, and spans that may reach beyond the document."""
    size, limit = draw(SIZES), draw(st.integers(min_value=1, max_value=1_000))
    starts = st.integers(min_value=0, max_value=6_000)
    span = st.builds(lambda start, length: Span(start=start, end=start + length), starts, st.integers(0, 400))
    spans = st.lists(span, max_size=12)
    return size, limit, draw(spans), draw(spans), draw(st.integers(min_value=0, max_value=300))


@given(cases())
def test_regions_are_in_order_disjoint_inside_and_bounded(case):
    size, limit, quotes, places, context = case
    found = regions(size, quotes, places, limit=limit, context=context)
    assert all(0 <= one.start < one.end <= size for one in found)
    assert all(one.end < other.start for one, other in pairwise(found))
    assert sum(map(len, found)) <= limit
    assert bool(found) == (size > 0)
    if size <= limit:
        assert found == ([Span(start=0, end=size)] if size else [])


@given(cases())
def test_all_quotes_are_on_the_page_if_they_fit(case):
    size, limit, quotes, places, context = case
    inside = [Span(start=one.start, end=min(one.end, size)) for one in quotes if one.start < min(one.end, size)]
    found = regions(size, quotes, places, limit=limit, context=context)
    if sum(map(len, inside)) <= limit:
        assert all(placed(one, found) == one for one in inside)


@given(cases(), st.integers(min_value=1, max_value=9))
def test_trimming_at_words_keeps_what_is_kept(case, length):
    size, limit, quotes, places, context = case
    text = StringText(("x" * length + " ") * (size // (length + 1)) + "y" * (size % (length + 1)))
    found = regions(size, quotes, places, limit=limit, context=context)
    kept = [one for one in quotes if placed(one, found) == one]
    trimmed = at_words(text, size, found, kept)
    assert all(placed(one, found) == one for one in trimmed)
    assert all(placed(one, trimmed) == one for one in kept)


def test_a_quote_in_a_large_document_has_text_around_it():
    quote = Span(start=500_000, end=500_100)
    assert regions(1_000_000, [quote], []) == [Span(start=498_500, end=501_600)]


def test_neighbours_are_one_region_and_a_document_without_quotes_shows_its_beginning():
    near = [Span(start=500_000, end=500_100), Span(start=503_200, end=503_300)]
    assert regions(1_000_000, near, []) == [Span(start=498_500, end=504_800)]
    assert regions(1_000_000, [], []) == [Span(start=0, end=3_000)]


def test_quotes_go_before_places():
    quotes, places = [Span(start=0, end=80)], [Span(start=200, end=280), Span(start=400, end=480)]
    assert regions(1_000, quotes, places, limit=100, context=0) == [Span(start=0, end=80)]
