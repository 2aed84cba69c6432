"""Laws of chunking: the chunks joined are the document; none is over its budget; no character is split."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent.core import chunking
from memagent.core.chunking import MIN_CHUNK_TOKENS, Chunks, chunk, split
from memagent.core.pieces import pieces
from memagent.core.types import Span
from memagent.errors import ConfigError
from memagent.models.open import EMBEDDED
from memagent.models.tokenizers import ByteTokenizer, FileTokenizer
from tests.helpers import SpreadTokenizer, StringText, WordTokenizer

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=600) | st.text(
    alphabet="ab .\n\r\t。é\u0301👩\u200d🔬\ufe0f🇫", max_size=600
)
TOKENIZERS = st.sampled_from([ByteTokenizer(), WordTokenizer()])


def cut(text: str, tokenizer=None, limit=MIN_CHUNK_TOKENS):
    return list(chunk(StringText(text), tokenizer or ByteTokenizer(), limit))


@given(TEXTS, TOKENIZERS, st.integers(MIN_CHUNK_TOKENS, 80))
@settings(max_examples=300, deadline=None)
def test_chunks_rejoin_and_respect_the_limit(text, tokenizer, limit):
    chunks = cut(text, tokenizer, limit)
    assert "".join(text[one.start : one.end] for one in chunks) == text
    assert all(one.start < one.end for one in chunks)
    for one in chunks:
        assert one.tokens == tokenizer.count(text[one.start : one.end]) <= limit


@given(TEXTS)
@settings(max_examples=150, deadline=None)
def test_a_split_halves_without_loss(text):
    halves = split(StringText(text), Span(start=0, end=len(text)))
    if len(text) < 2:
        assert halves is None
    else:
        first, second = halves
        assert text[first.start : first.end] + text[second.start : second.end] == text
        assert len(first) > 0
        assert len(second) > 0


def test_blocks_do_not_show_in_the_chunks(monkeypatch):
    text = "".join(f"Sentence number {n} is here. " for n in range(4000))
    whole = cut(text, WordTokenizer(), 50)
    monkeypatch.setattr("memagent.core.chunking._BLOCK_CHARS", 3000)
    assert cut(text, WordTokenizer(), 50) == whole


@pytest.mark.parametrize(
    "tokenizer",
    [ByteTokenizer(), WordTokenizer(), SpreadTokenizer(), FileTokenizer.load(EMBEDDED)],
    ids=lambda tokenizer: tokenizer.name,
)
def test_settled_chunks_stay_whatever_is_added_to_the_text(monkeypatch, tokenizer):
    monkeypatch.setattr(chunking, "_BLOCK_CHARS", 1)
    text = "".join(f"Line {n * n} tells of whales.{' ' if n % 3 else chr(10)}" for n in range(240))
    text += "x" * 2900 + " and the sea." * 90  # where a block may hold less than one chunk
    whole, kept = list(chunk(StringText(text), tokenizer, 20)), set()
    for size in range(1, len(text), 151):
        settled = chunking.cut(StringText(text[:size]), tokenizer, 20).settled
        assert list(settled) == whole[: len(settled)]
        assert list(chunking.cut(StringText(text), tokenizer, 20, settled)) == whole
        kept.add(len(settled))
    assert len(kept) > 3
    again = Chunks(whole)
    assert chunking.cut(StringText(text), tokenizer, 20, again) is again


@pytest.mark.parametrize("tokenizer", [WordTokenizer(), FileTokenizer.load(EMBEDDED)], ids=lambda tokenizer: tokenizer.name)
def test_pieces_do_not_show_in_the_chunks(monkeypatch, tokenizer):
    text = "".join(f"Line {n * n} tells of Straße and whales. " for n in range(900))
    whole = cut(text, tokenizer, 50)
    monkeypatch.setattr(chunking, "_PIECE_CHARS", 512)
    assert cut(text, tokenizer, 50) == whole


@given(TEXTS, st.integers(1, 60))
@settings(max_examples=300, deadline=None)
def test_pieces_join_to_the_text(text, size):
    found = list(pieces(text, size))
    assert "".join(piece for _, piece in found) == text
    assert all(0 < len(piece) <= size and text.startswith(piece, offset) for offset, piece in found)


class Waiting(WordTokenizer):
    """Counts as a server does: a request ends once several are there. `alone` counts those that nobody came to join."""

    at_once = 8

    def __init__(self, together: int) -> None:
        self.barrier, self.alone = threading.Barrier(together), 0

    def count(self, text: str) -> int:
        self.wait()
        return len(WordTokenizer.ends(self, text))

    def ends(self, text: str) -> Sequence[int]:
        self.wait()
        return super().ends(text)

    def wait(self) -> None:
        try:
            self.barrier.wait(20)
        except threading.BrokenBarrierError:
            self.alone += 1


def test_chunks_are_found_and_counted_at_the_same_time(monkeypatch):
    """As a server is asked to count, each request of which takes its time."""
    waiting = Waiting(4)
    text = " ".join(["sea"] * 2000)
    text = text[: cut(text, WordTokenizer(), 50)[15].end].rstrip()
    four = next(size for size in range(len(text) // 4, len(text)) if len(list(pieces(text, size))) == 4)
    monkeypatch.setattr(chunking, "_PIECE_CHARS", four)
    assert len(cut(text, waiting, 50)) == 16
    assert waiting.alone == 0


class Stalled(WordTokenizer):
    """The first count fails once others are under way, which end when `over` is set."""

    at_once = 4

    def __init__(self) -> None:
        self.over, self.under_way, self.late = threading.Event(), threading.Semaphore(0), 0

    def count(self, text: str) -> int:
        if text.startswith("first"):
            for _ in range(3):
                self.under_way.acquire(timeout=20)
            raise ConfigError("the server is gone")
        self.under_way.release()
        self.late += not self.over.wait(20)
        return super().count(text)


def test_what_ends_the_cutting_does_not_wait_for_counts_under_way():
    """Nor does an interrupt, while a server does not answer."""
    stalled = Stalled()
    with pytest.raises(ConfigError, match="the server is gone"):
        cut("first " + "sea " * 2000, stalled, 50)
    assert not stalled.late
    stalled.over.set()


class Crowded(WordTokenizer):
    """A text that begins with "odd" has six tokens more than where it stands in a longer one. Counts are counted."""

    def __init__(self) -> None:
        self.counted = 0

    def count(self, text: str) -> int:
        self.counted += 1
        return super().count(text)

    def ends(self, text: str) -> Sequence[int]:
        return [*([1] * 6 if text.lstrip().startswith("odd") else []), *super().ends(text)]


def test_chunks_that_have_more_tokens_than_planned_are_cut_shorter_at_little_cost():
    tokenizer = Crowded()
    text = "".join(f"{'odd' if n % 2 else 'even'}{n} " * 20 for n in range(400))
    chunks = cut(text, tokenizer, 20)
    counted = tokenizer.counted
    assert "".join(text[one.start : one.end] for one in chunks) == text
    assert all(one.tokens == tokenizer.count(text[one.start : one.end]) <= 20 for one in chunks)
    assert len(chunks) > 400
    assert counted < 10 * len(chunks)


def test_memory_is_bounded_by_a_block():
    text = StringText("word " * 200_000)
    list(chunk(text, WordTokenizer(), 100))
    assert text.longest_read <= 1 << 16


@pytest.mark.parametrize(
    ("text", "border"),
    [
        ("one two three four five. six seven eight nine ten eleven twelve thirteen fourteen fifteen. sixteen more", ". "),
        ("a b c d e f g h i j k l m n\n\no p q r s t u v w x y z", "\n\n"),
    ],
)
def test_cuts_prefer_where_a_reader_would_pause(text, border):
    first = cut(text, WordTokenizer(), 16)[0]
    assert text[: first.end].endswith(border)


def test_far_borders_are_not_worth_a_short_chunk():
    text = "end. " + "x" * 500
    assert cut(text, limit=100)[0].end == 100


def test_joined_characters_stay_together():
    family = "👩\u200d🔬"
    text = "a" * 60 + family * 30
    for one in cut(text, limit=32)[:-1]:
        after = text[one.end]
        assert after not in "\u200d🔬"
        assert not unicodedata.combining(after)


SEQUENCES = st.text(alphabet="a .\r\n\u0301\ufe0f\u200d\u0902\u0915\u093f👩", max_size=200)


def joined(before, after):
    mark = unicodedata.category(after).startswith("M")
    return mark or "\u200d" in (before, after) or (before, after) == ("\r", "\n")


@given(SEQUENCES, st.integers(MIN_CHUNK_TOKENS, 40))
@settings(max_examples=1000, deadline=None)
def test_no_cut_inside_a_sequence_that_a_chunk_could_hold(text, limit):
    for one in cut(text, ByteTokenizer(), limit)[:-1]:
        if joined(text[one.end - 1], text[one.end]):  # only where all of the chunk is one sequence, longer than the limit
            assert all(joined(*pair) for pair in pairwise(text[one.start : one.end]))


def test_a_limit_too_small_is_refused_with_the_least():
    with pytest.raises(ConfigError, match="15 tokens is too small: use at least 16"):
        cut("text", limit=15)


def test_an_empty_text_has_no_chunks():
    assert cut("") == []


@given(TEXTS)
@settings(max_examples=50, deadline=None)
def test_kept_chunks_are_those_that_were_cut(text):
    chunks = cut(text)
    kept = Chunks(chunks)
    assert list(kept) == chunks == kept[:]
    assert kept[1:3] == chunks[1:3]
    assert kept.tokens == sum(one.tokens for one in chunks)
    if chunks:
        assert (kept[-1], kept[0]) == (chunks[-1], chunks[0])
        assert kept.digest() != Chunks(chunks[:-1]).digest()
    with pytest.raises(IndexError):
        kept[len(chunks)]
