"""Words made of a tokenizer's pieces: more of the vocabulary stands in keys, and no word of evaluation does."""

from __future__ import annotations

import random

import pytest
from tokenizers import Tokenizer, models

from memagent.errors import TrainingError
from memagent.models.open import EMBEDDED
from memagent.tasks.words import Words, shipped_words, split_of
from memagent.training.vocabulary import subword_words
from tests.helpers import raw_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return raw_tokenizer(EMBEDDED)


def test_the_share_is_kept_and_no_word_is_one_of_evaluation(tokenizer: Tokenizer) -> None:
    shipped = shipped_words("train")
    words = subword_words(tokenizer, shipped, 0.7, random.Random(1))
    for listed, all_words in ((shipped.adjectives, words.adjectives), (shipped.nouns, words.nouns)):
        assert all_words[: len(listed)] == listed
        assert 1 - len(listed) / len(all_words) == pytest.approx(0.7, abs=0.001)
        assert all(split_of(word) == "train" and word.isalpha() and len(word) <= 12 for word in all_words)
    assert words == subword_words(tokenizer, shipped, 0.7, random.Random(1))
    assert words != subword_words(tokenizer, shipped, 0.7, random.Random(2))


def test_what_begins_a_key_of_evaluation_has_begun_a_key_of_training(tokenizer: Tokenizer) -> None:
    """The point of it: the shipped words alone leave half of these tokens unseen."""

    def first(words: Words) -> set[str]:
        return {tokenizer.encode(f" {word}", add_special_tokens=False).tokens[0] for word in words.adjectives}

    shipped, wanted = shipped_words("train"), first(shipped_words("eval"))
    assert len(wanted - first(shipped)) > len(wanted) / 2
    assert len(wanted - first(subword_words(tokenizer, shipped, 0.7, random.Random(1)))) < len(wanted) / 8


def test_a_tokenizer_without_subwords_of_letters_is_refused() -> None:
    with pytest.raises(TrainingError, match="0 subwords of letters"):
        subword_words(Tokenizer(models.WordLevel({"?": 0}, "?")), shipped_words("train"), 0.5, random.Random(1))
