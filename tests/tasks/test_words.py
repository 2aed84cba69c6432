"""The split of words."""

from __future__ import annotations

from pathlib import Path

import pytest

from memagent.errors import TaskError
from memagent.tasks.words import load_words, shipped_words, split_of


@pytest.mark.parametrize("kind", ["adjectives", "nouns"])
def test_no_word_is_used_for_training_and_for_evaluation(kind: str) -> None:
    train, held_out = (set(getattr(shipped_words(split), kind)) for split in ("train", "eval"))
    assert train
    assert held_out
    assert not train & held_out
    assert all(split_of(word) == "eval" for word in held_out)
    assert 0.15 < len(held_out) / len(train | held_out) < 0.25


def test_a_list_of_your_own_is_split_too(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("\n".join(f"word{number}" for number in range(400)) + "\nword1\n", encoding="utf-8")
    train, held_out = load_words(path, "train"), load_words(path, "eval")
    assert held_out.adjectives == held_out.nouns
    assert len(set(held_out.nouns)) == len(held_out.nouns)
    assert sorted(train.nouns + held_out.nouns) == sorted(f"word{number}" for number in range(400))


def test_a_list_that_is_too_short_or_no_text_is_refused(tmp_path: Path) -> None:
    short, binary = tmp_path / "short.txt", tmp_path / "binary.txt"
    short.write_text("one\ntwo\n", encoding="utf-8")
    binary.write_bytes(b"caf\xe9")
    with pytest.raises(TaskError, match=r"short\.txt.*16"):
        load_words(short, "eval")
    with pytest.raises(TaskError, match=r"binary\.txt"):
        load_words(binary, "eval")
