"""Porter's stemmer: words of his paper, and what holds for every word."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memagent.stemming import stem


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("caress caresses ponies ties cats", "caress caress poni tie cat"),
        ("feed agreed plastered bled motoring sing", "feed agre plaster bled motor sing"),
        ("conflated troubled sized hopping falling hissing failing filing", "conflat troubl size hop fall hiss fail file"),
        ("happy sky enjoy", "happi sky enjoy"),
        ("relational conditional valency digitizer operator callousness", "relat condit valenc digit oper callous"),
        ("triplicate formative electrical hopeful goodness", "triplic form electr hope good"),
        ("revival allowance adjustable adoption effective bowdlerize", "reviv allow adjust adopt effect bowdler"),
        ("probate rate cease controlling rolling", "probat rate ceas control roll"),
        ("dying died cried skies news succeed", "die die cri sky news succeed"),
        ("is at by ion yy 2023 ünder", "is at by ion yy 2023 ünder"),
    ],
)
def test_words_have_their_stems(words: str, found: str) -> None:
    assert " ".join(map(stem, words.split())) == found


@example("dying")
@given(st.text("aeiouybdglmnst", max_size=12) | st.text(max_size=12))
def test_a_stem_is_never_much_longer_and_begins_like_its_word(word: str) -> None:
    assert len(stem(word)) <= len(word) + 1
    alike = 1 if word in {"dying", "lying", "tying"} else 2  # "die", "lie" and "tie" are listed
    assert word.startswith(stem(word)[:alike])  # "aed" has a stem of one letter
    assert bool(stem(word)) == bool(word)


def test_a_very_long_word_is_no_trouble() -> None:
    assert stem("y" * 50_000).startswith("y")
