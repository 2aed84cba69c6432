"""A lazy text reads as the string it stands for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memagent.core.types import Span
from memagent.tasks.lazy_text import LazyText

BASE = "The sea was calm. Nobody spoke. A gull cried, and it was evening."
offsets = st.integers(0, len(BASE))
spans = st.tuples(offsets, offsets).map(lambda pair: Span(start=min(pair), end=max(pair)))
pieces_lists = st.lists(st.one_of(spans, st.text(max_size=8)), max_size=8)


def plain(pieces):
    return "".join(piece if isinstance(piece, str) else BASE[piece.start : piece.end] for piece in pieces)


@given(pieces_lists, st.integers(-3, 150), st.integers(-3, 150))
def test_a_lazy_text_reads_as_the_joined_text(pieces, start, end):
    lazy, text = LazyText(pieces, BASE), plain(pieces)
    assert str(lazy) == text
    assert len(lazy) == len(text)
    assert lazy.read(max(0, start), max(0, end)) == text[max(0, start) : max(0, end)]


@given(pieces_lists)
def test_lazy_texts_are_equal_if_they_read_the_same(pieces):
    assert LazyText(pieces, BASE) == LazyText([plain(pieces)])
    assert hash(LazyText(pieces, BASE)) == hash(LazyText([plain(pieces)]))
    assert LazyText(pieces, BASE) != LazyText([*pieces, "x"], BASE)


def test_reading_a_little_of_a_long_text_does_not_join_it():
    base = "x" * 1_000_000
    lazy = LazyText([Span(start=0, end=1_000_000), "needle"] * 50, base)
    assert len(lazy) == 50 * 1_000_006
    assert lazy.read(1_000_000, 1_000_006) == "needle"
    assert lazy.read(49_000_000 + 49 * 6 + 1_000_000, 60_000_000) == "needle"
