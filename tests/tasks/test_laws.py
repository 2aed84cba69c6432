"""What holds for every task of every family."""

from __future__ import annotations

import random
import re

import pytest

from memagent.errors import TaskError
from memagent.scoring import strict
from memagent.tasks.haystack import Haystack
from memagent.tasks.samples import Sample
from memagent.tasks.task import Materials
from memagent.tasks.words import Words, shipped_words
from tests.tasks.made import TASKS, TOKENIZERS, lengths, materials, sample, tokenizer


def told(one: Sample) -> list[tuple[str, str, str, bool]]:
    return sorted((fact.text, fact.key, fact.value, fact.needed) for fact in one.facts)


@pytest.mark.parametrize("counted_by", TOKENIZERS)
@pytest.mark.parametrize("task", TASKS)
def test_length_facts_and_answers(task: str, counted_by: str) -> None:
    for tokens in lengths(task, counted_by):
        for index in range(3):
            one = sample(task, tokens, index=index, using=materials(counted_by))
            text = str(one.document)
            have = tokenizer(counted_by).count(text)
            assert tokens * 0.99 <= have <= tokens, (tokens, index)
            assert abs(one.tokens - have) <= 16
            assert len(one.document) == len(text)
            places = [fact.start for fact in one.facts]
            assert places == sorted(places)
            for fact in one.facts:
                assert text[fact.start : fact.end] == fact.text
                assert fact.key in fact.text
                assert fact.value in fact.text
            if one.facts:
                assert {fact.value for fact in one.facts if fact.needed} == set(one.answers)
            assert strict(one.gold, one.answers, one.mode) == 1
            assert strict("", one.answers, one.mode) == 0


@pytest.mark.parametrize("task", TASKS)
def test_a_sample_depends_on_its_arguments_alone(task: str) -> None:
    first = [sample(task, index=index) for index in (0, 1)]
    random.seed(99)
    fresh = Materials(tokenizer=tokenizer("words"), haystack=Haystack.shipped(), words=shipped_words("eval"))
    again = [sample(task, index=index, using=fresh) for index in (1, 0)]
    assert again == first[::-1]


@pytest.mark.parametrize("task", TASKS)
def test_another_index_or_seed_is_another_sample(task: str) -> None:
    samples = [sample(task), sample(task, index=1), sample(task, seed=2)]
    assert len({one.id for one in samples}) == 3
    assert len({one.answers for one in samples}) == 3
    assert len({one.document for one in samples}) == 3


@pytest.mark.parametrize("task", TASKS)
def test_the_same_is_asked_at_every_length_and_for_every_tokenizer(task: str) -> None:
    short = sample(task, 3600)
    for other in (sample(task, 40_000), sample(task, 4200, using=materials("estimate"))):
        assert other.question == short.question
        assert other.answers == short.answers
        assert told(other) == told(short)


@pytest.mark.parametrize("task", TASKS)
def test_names_task_seed_and_length(task: str) -> None:
    one = sample(task, 4000, seed=7, index=3)
    assert (one.id, one.task, one.seed) == (f"{task}-4000-7-3", task, 7)
    assert one.meta


@pytest.mark.parametrize("task", TASKS)
def test_no_training_word_comes_into_an_evaluation_sample(task: str) -> None:
    training = {*shipped_words("train").adjectives, *shipped_words("train").nouns}
    for index in range(5):
        one = sample(task, index=index)
        names = [name for fact in one.facts for name in (fact.key, fact.value)] + list(one.answers)
        if one.meta.get("haystack") == "needle":
            names += re.findall(r"for (\S+) is", str(one.document))
        if task == "cwe":
            names += str(one.document).split()
        assert not training & {part.lower() for name in names for part in re.split(r"[-\s]", name)}


@pytest.mark.parametrize("task", TASKS)
def test_too_few_tokens_are_refused_with_both_numbers(task: str) -> None:
    with pytest.raises(TaskError, match=r"20 tokens.* need.* \d\d"):
        sample(task, 20, using=materials("bytes"))


FEW = Words(tuple(f"old{letter}" for letter in "abcdefghijklmnop"), tuple(f"hat{letter}" for letter in "abcdefghijklmnop"))


@pytest.mark.parametrize("text", ["It rained.", "雨が降っていた。猫は家にいた。\n" * 9, "no end no border " * 50])
@pytest.mark.parametrize("task", TASKS)
def test_any_text_and_few_words_do(task: str, text: str) -> None:
    using = Materials(tokenizer=tokenizer("bytes"), haystack=Haystack([text]), words=FEW)
    for tokens in (4000, 40_000):
        one = sample(task, tokens, using=using)
        assert tokens * 0.99 <= len(str(one.document).encode()) <= tokens
