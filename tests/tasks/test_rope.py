"""A rope reads as the string it stands for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memagent.core.types import Span
from memagent.tasks.rope import Rope

BASE = "The sea was calm. Nobody spoke. A gull cried, and it was evening."
offsets = st.integers(0, len(BASE))
spans = st.tuples(offsets, offsets).map(lambda pair: Span(start=min(pair), end=max(pair)))
ropes = st.lists(st.one_of(spans, st.text(max_size=8)), max_size=8)


def plain(pieces):
    return "".join(piece if isinstance(piece, str) else BASE[piece.start : piece.end] for piece in pieces)


@given(ropes, st.integers(-3, 150), st.integers(-3, 150))
def test_a_rope_reads_as_the_joined_text(pieces, start, end):
    rope, text = Rope(pieces, BASE), plain(pieces)
    assert str(rope) == text
    assert len(rope) == len(text)
    assert rope.read(max(0, start), max(0, end)) == text[max(0, start) : max(0, end)]


@given(ropes)
def test_ropes_are_equal_if_they_read_the_same(pieces):
    assert Rope(pieces, BASE) == Rope([plain(pieces)])
    assert hash(Rope(pieces, BASE)) == hash(Rope([plain(pieces)]))
    assert Rope(pieces, BASE) != Rope([*pieces, "x"], BASE)


def test_reading_a_little_of_a_long_rope_does_not_join_it():
    base = "x" * 1_000_000
    rope = Rope([Span(start=0, end=1_000_000), "needle"] * 50, base)
    assert len(rope) == 50 * 1_000_006
    assert rope.read(1_000_000, 1_000_006) == "needle"
    assert rope.read(49_000_000 + 49 * 6 + 1_000_000, 60_000_000) == "needle"
