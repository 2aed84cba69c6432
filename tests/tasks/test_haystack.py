"""Haystacks: borders, windows, and token counts that are known in advance."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.errors import TaskError
from memagent.tasks.haystack import Haystack, TokenIndex, sentence_borders
from memagent.tasks.samples import generator
from tests.helpers import WordTokenizer
from tests.tasks.made import TOKENIZERS, tokenizer

SENTENCE = "Mr. Grey looked at the old clock on the wall, and said nothing. "
HAYSTACK = Haystack(["\n\n".join(SENTENCE * 4 for _ in range(60)), "It rained. " * 900])
LONG = Haystack.shipped()


def test_a_window_is_as_long_as_asked_even_from_short_texts() -> None:
    rng = generator(0, "window", 0)
    for chars in (10, 5000, 200_000):
        assert len(HAYSTACK.window(rng, chars)) >= chars


def test_sentence_borders_are_behind_sentences() -> None:
    text = 'Dr. Who came. He left! "Why?" Nobody knew'
    assert [text[border : border + 3] for border in sentence_borders(text)] == ["Dr.", "He ", '"Wh', "Nob", ""]
    assert [text[border : border + 3] for border in Haystack([text]).borders[:4]] == ["Dr.", "He ", '"Wh', "Nob"]


def test_line_borders_are_behind_lines() -> None:
    haystack = Haystack(["One. Two.\nThree.\n", "Four."], lines=True)
    assert haystack.text.startswith("One. Two.\nThree.\nFour.\nOne. Two.\n")
    assert [haystack.text[border] for border in haystack.borders[:5]] == ["O", "T", "F", "O", "T"]


def test_a_haystack_names_a_file_it_cannot_read(tmp_path: Path) -> None:
    bad, packed = tmp_path / "latin.txt", tmp_path / "short.gz"
    bad.write_bytes(b"caf\xe9")
    packed.write_bytes(gzip.compress(b"text")[:-4])
    for path in (bad, packed, tmp_path / "none.txt"):
        with pytest.raises(TaskError, match=path.name):
            Haystack.load([path])
    with pytest.raises(TaskError, match="non-empty text"):
        Haystack([" \n"])


@pytest.mark.parametrize("name", TOKENIZERS)
def test_counts_and_places_agree_with_the_tokenizer(name: str) -> None:
    index = TokenIndex(LONG.text, tokenizer(name))
    for start in (0, 1234, 65_530, 131_080, 700_000):
        for tokens in (1, 2, 99, 5000, 60_000):
            end = index.advance(start, tokens)
            assert index.count(start, end) == tokens
            assert abs(tokenizer(name).count(LONG.text[start:end]) - tokens) <= 3
            assert index.advance(start, index.count(start, end)) == end
    assert index.advance(77, 0) == 77
    assert index.advance(77, 10**9) == len(LONG.text)
    assert index.count(0, len(LONG.text)) == pytest.approx(tokenizer(name).count(LONG.text), rel=1e-4)


def test_a_block_that_ends_with_the_last_token_asked_for() -> None:
    index = TokenIndex(LONG.text, WordTokenizer())
    for block in (1, 2, 3):
        tokens = index.count(0, index._cut(block))
        assert index.advance(0, tokens) == index._cut(block)
        assert index.advance(0, tokens + 1) > index._cut(block)


@given(st.integers(0, 10**6), st.integers(1, 9000), st.integers(0, 40))
def test_taken_spans_follow_each_other_and_hold_what_was_asked(seed: int, tokens: int, slack: int) -> None:
    start = HAYSTACK.start(generator(seed, "take", 0))
    spans, used = HAYSTACK.take(WordTokenizer(), start, tokens, slack)
    assert tokens - slack <= used <= tokens
    assert spans[0].start == start
    assert all(span.start == 0 for span in spans[1:])
    assert all(span.end == len(HAYSTACK.text) for span in spans[:-1])


def test_a_text_without_spaces_is_cut_anywhere() -> None:
    haystack = Haystack(["雨が降っていた。" * 500])
    spans, used = haystack.take(tokenizer("bytes"), 0, 700, slack=3)
    assert 697 <= used <= 700
    assert len(spans) == 1


def test_a_short_text_is_repeated_into_few_spans() -> None:
    haystack = Haystack(["It rained. He stayed at home."])
    assert haystack.text.count("It rained. He stayed at home.\n\n") * 31 == len(haystack.text) > 60_000
    spans, _ = haystack.take(WordTokenizer(), 0, 1_000_000)
    assert len(spans) < 100
