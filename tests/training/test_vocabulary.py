"""Words made of a tokenizer's pieces: every piece can stand in a key, and no evaluation word does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer

from memagent.errors import TrainingError
from memagent.models.open import EMBEDDED
from memagent.profiles import load_profile
from memagent.tasks.words import Words, shipped_words, split_of
from memagent.training.data import open_source
from memagent.training.tokenizer import load_tokenizer
from memagent.training.vocabulary import pieced_words


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(EMBEDDED)


def test_the_share_is_kept_and_no_word_is_one_of_evaluation(tokenizer: Tokenizer) -> None:
    shipped = shipped_words("train")
    words = pieced_words(tokenizer, shipped, 0.7, random.Random(1))
    for listed, all_words in ((shipped.adjectives, words.adjectives), (shipped.nouns, words.nouns)):
        assert all_words[: len(listed)] == listed
        assert 1 - len(listed) / len(all_words) == pytest.approx(0.7, abs=0.001)
        assert all(split_of(word) == "train" and word.isalpha() and len(word) <= 12 for word in all_words)
    assert words == pieced_words(tokenizer, shipped, 0.7, random.Random(1))
    assert words != pieced_words(tokenizer, shipped, 0.7, random.Random(2))


def test_what_begins_an_evaluation_word_has_begun_a_word_of_training(tokenizer: Tokenizer) -> None:
    """The point of it: the shipped words alone leave one first token in six unseen."""

    def first(words: Words) -> set[str]:
        return {tokenizer.encode(f" {word}", add_special_tokens=False).tokens[0] for word in words.adjectives + words.nouns}

    shipped, wanted = shipped_words("train"), first(shipped_words("eval"))
    assert len(wanted - first(shipped)) > len(wanted) / 8
    assert len(wanted - first(pieced_words(tokenizer, shipped, 0.7, random.Random(1)))) < len(wanted) / 50


def test_training_draws_from_them_and_validation_does_not(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("He came home late that evening. She had gone out, and nobody said a word about it.\n\n" * 60)
    policy, profile = AutoTokenizer.from_pretrained(EMBEDDED, local_files_only=True), load_profile("compact")
    shipped = set(shipped_words("train").nouns)
    assert set(open_source(policy, [book], profile, "train").materials.words.nouns) == shipped
    mixed = open_source(policy, [book], profile, "train", 0.5, 7).materials.words.nouns
    assert len(mixed) == 2 * len(shipped_words("train").nouns)
    assert set(mixed) - shipped


def test_a_tokenizer_without_pieces_of_letters_is_refused() -> None:
    with pytest.raises(TrainingError, match="0 pieces of letters"):
        pieced_words(Tokenizer(models.WordLevel({"?": 0}, "?")), shipped_words("train"), 0.5, random.Random(1))
