"""Counting words: the asked ones are the most frequent, by a margin, and nobody else is."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest

from memagent.errors import TaskError
from memagent.tasks.counting import CommonOptions, FrequentOptions, zeta
from memagent.tasks.task import Materials
from memagent.tasks.words import Words, shipped_words
from tests.tasks.made import TASKS, materials, sample, tokenizer


def listed(text: str) -> list[str]:
    parts = text.split(" ")
    assert parts[::2] == [f"{number}." for number in range(1, len(parts) // 2 + 1)]
    return parts[1::2]


def test_the_published_parameters() -> None:
    assert TASKS["cwe"].defaults == CommonOptions()
    assert TASKS["fwe"].defaults == FrequentOptions(alpha=2.0)
    assert CommonOptions().common == 10
    assert CommonOptions().times(4095) == (6, 1)
    assert CommonOptions().times(4096) == (30, 3)


@pytest.mark.parametrize("tokens", [700, 4095, 4096, 40_000])
def test_common_words_come_often_and_others_rarely(tokens: int) -> None:
    one = sample("cwe", tokens)
    often, rarely = CommonOptions().times(tokens)
    counts = Counter(listed(str(one.document)))
    assert len(one.answers) == 10
    assert {word for word, times in counts.items() if times == often} == set(one.answers)
    others = [times for word, times in counts.items() if word not in one.answers]
    assert sum(times != rarely for times in others) <= 1
    assert max(others) <= rarely


def test_common_words_stand_anywhere_in_the_list() -> None:
    words = listed(str(sample("cwe", 40_000).document))
    tenth = len(words) // 10
    common = set(sample("cwe", 40_000).answers)
    assert all(common & set(words[part * tenth : (part + 1) * tenth]) for part in range(10))


def test_a_short_word_list_is_helped_out_with_coined_words() -> None:
    few = Words(tuple("red blue tall".split()), tuple(f"{word}hat" for word in "abcdefghijklm"))
    using = Materials(tokenizer=tokenizer("words"), haystack=materials().haystack, words=few)
    counts = Counter(listed(str(sample("cwe", 4096, using=using).document)))
    assert len(counts) > 100
    answers = sample("cwe", 4096, using=using).answers
    assert len(answers) == 10
    coined = counts.keys() - {*few.adjectives, *few.nouns}
    assert all(word.isalpha() for word in coined)
    assert not [(word, common) for word in coined for common in answers if common in word]


def test_common_words_that_every_coined_word_holds_are_refused() -> None:
    letters = Words((), tuple("abcdefghijklmnopqrstuvwxyz"))
    using = Materials(tokenizer=tokenizer("words"), haystack=materials().haystack, words=letters)
    with pytest.raises(TaskError, match="longer words"):
        sample("cwe", 4096, using=using, common=26)


@pytest.mark.parametrize("tokens", [4096, 40_000, 300_000])
def test_no_part_of_an_entry_comes_more_often_than_the_common_words(tokens: int) -> None:
    one = sample("cwe", tokens)
    counts = Counter(re.findall("[a-z]+", str(one.document)))
    assert {word for word, _ in counts.most_common(10)} == set(one.answers)
    listed = {*shipped_words("eval").adjectives, *shipped_words("eval").nouns}
    assert (len(counts) > len(listed)) is (tokens > 4096)


@pytest.mark.parametrize("tokens", [700, 4000, 40_000])
@pytest.mark.parametrize("alpha", [1.5, 2.0, 3.0])
def test_the_three_coded_words_come_strictly_more_often(tokens: int, alpha: float) -> None:
    one = sample("fwe", tokens, alpha=alpha)
    counts = Counter(str(one.document).split(" "))
    dots = counts.pop("...")
    assert all(len(word) == 6 and word.isalpha() and word.islower() for word in counts)
    ranked = [word for word, _ in counts.most_common()]
    assert set(ranked[:3]) == set(one.answers)
    assert len(ranked) < 4 or counts[ranked[2]] > counts[ranked[3]]
    assert dots > counts[ranked[0]]
    assert len(ranked) < max(tokens // 50, 5)


def test_frequencies_follow_the_zeta_distribution() -> None:
    counts = Counter(str(sample("fwe", 40_000).document).split(" "))
    total = counts["..."] * zeta(2.0)
    for rank, (_, times) in enumerate(counts.most_common(20), 1):
        assert times == pytest.approx(total / zeta(2.0) / rank**2, abs=1.5)


def test_zeta() -> None:
    assert zeta(2) == pytest.approx(math.pi**2 / 6, abs=1e-13)
    assert zeta(4) == pytest.approx(math.pi**4 / 90, abs=1e-13)


@pytest.mark.parametrize(
    ("task", "options"), [("fwe", {"alpha": 1.0}), ("cwe", {"common": 0}), ("cwe", {"often": 1, "rarely": 1})]
)
def test_impossible_options_are_refused(task: str, options: dict[str, float]) -> None:
    with pytest.raises(TaskError, match=r"alpha|common"):
        sample(task, **options)


def test_a_long_list_takes_words_without_end() -> None:
    one = sample("cwe", 300_000)
    counts = Counter(listed(str(one.document)))
    assert len(counts) > 30_000
    assert max(times for word, times in counts.items() if word not in one.answers) == 3
