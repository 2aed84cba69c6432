"""Laws of the needle family."""

from __future__ import annotations

import dataclasses
import random
import re

import pytest

from memagent.errors import TaskError
from memagent.scoring import strict
from memagent.tasks.haystack import Haystack, sentence_borders
from memagent.tasks.keys import distinct_keys, is_new, relative
from memagent.tasks.needle import SPECS, NeedleSpec, needle, plant
from memagent.tasks.samples import generator
from memagent.tasks.words import split_of, words

SENTENCE = "Mr. Grey looked at the old clock on the wall, and said nothing. "
HAYSTACK = Haystack(["\n\n".join(SENTENCE * 4 for _ in range(60)), "It rained. " * 900])


def count(text: str) -> int:
    """Words and marks: a tokenizer that is good enough for the laws."""
    return len(re.findall(r"\w+|[^\w\s]", text))


@pytest.mark.parametrize("name", sorted(SPECS))
@pytest.mark.parametrize("tokens", [700, 4000])
def test_documents_fit_and_hold_their_facts(name: str, tokens: int) -> None:
    for index in range(5):
        sample = needle(SPECS[name], HAYSTACK, count, tokens=tokens, seed=3, index=index)
        assert tokens * 0.99 <= sample.tokens == count(sample.document) <= tokens
        for fact in sample.facts:
            assert sample.document[fact.start : fact.end] == fact.text
            assert sample.document.count(fact.text) == 1
            assert fact.key in fact.text
            assert fact.value in fact.text
        assert [fact.start for fact in sample.facts] == sorted(fact.start for fact in sample.facts)


@pytest.mark.parametrize("name", sorted(SPECS))
def test_gold_scores_one_and_nothing_scores_zero(name: str) -> None:
    sample = needle(SPECS[name], HAYSTACK, count, tokens=700, seed=1, index=0)
    assert strict(sample.gold, sample.answers, sample.mode) == 1
    assert strict("", sample.answers, sample.mode) == 0


def test_a_sample_depends_on_seed_task_and_index_only() -> None:
    first = needle(SPECS["multikey"], HAYSTACK, count, tokens=900, seed=5, index=7)
    random.seed(99)
    assert needle(SPECS["multikey"], HAYSTACK, count, tokens=900, seed=5, index=7) == first
    assert needle(SPECS["multikey"], HAYSTACK, count, tokens=900, seed=5, index=8) != first
    assert needle(SPECS["multikey"], HAYSTACK, count, tokens=900, seed=6, index=7) != first


def test_every_asked_key_is_in_the_question_and_no_other() -> None:
    spec = dataclasses.replace(SPECS["multiquery"], keys=8)
    sample = needle(spec, HAYSTACK, count, tokens=900, seed=5, index=0)
    asked = [fact for fact in sample.facts if fact.key in sample.question]
    assert {fact.value for fact in asked} == set(sample.answers)
    assert len(sample.facts) == 8
    assert len(asked) == 4


def test_impossible_specs_and_lengths_are_refused() -> None:
    with pytest.raises(TaskError, match="3 queries of 2 keys"):
        NeedleSpec(keys=2, queries=3)
    with pytest.raises(TaskError, match="cannot be made 5 tokens long"):
        needle(SPECS["multikey"], HAYSTACK, count, tokens=5, seed=0, index=0)


def test_planting_keeps_the_text_and_gives_exact_offsets() -> None:
    text = "One is here. Two is there. Three is gone. Four"
    facts = [("The code of a is 1.", "a", "1"), ("The code of b is 2.", "b", "2"), ("The code of c is 3.", "c", "3")]
    planted, places = plant(text, facts, [1.0, 0.0, 0.5])
    assert [place.key for place in places] == ["b", "c", "a"]
    for place in places:
        assert planted[place.start : place.end] == place.text
    rest = planted
    for place in reversed(places):
        rest = rest[: place.start] + rest[place.end + 1 :]
    assert rest.replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("depths", [[0.5], [0.1, 1.5]])
def test_planting_refuses_depths_that_do_not_fit(depths: list[float]) -> None:
    with pytest.raises(TaskError, match="between 0 and 1"):
        plant("A text. And more.", [("s", "k", "v"), ("t", "l", "w")], depths)


def test_no_word_is_used_for_training_and_for_evaluation() -> None:
    for kind in ("adjectives", "nouns"):
        train, held_out = set(words(kind, "train")), set(words(kind, "eval"))
        assert train
        assert held_out
        assert not train & held_out
        assert all(split_of(word) == "eval" for word in held_out)
        assert 0.15 < len(held_out) / len(train | held_out) < 0.25


def test_keys_are_distinct_and_relatives_share_one_word() -> None:
    rng = generator(0, "keys", 0)
    keys = distinct_keys(rng, 50, "pair", "eval")
    assert len(set(keys)) == 50
    assert all(is_new(key, [k for k in keys if k != key]) for key in keys)
    for key in keys:
        other = relative(rng, key, "eval")
        assert other == key or len(set(other.split("-")) & set(key.split("-"))) == 1


def test_a_window_is_as_long_as_asked_even_from_short_texts() -> None:
    rng = generator(0, "window", 0)
    for chars in (10, 5000, 200_000):
        assert len(HAYSTACK.window(rng, chars)) >= chars


def test_sentence_borders_are_behind_sentences() -> None:
    text = 'Dr. Who came. He left! "Why?" Nobody knew'
    assert [text[border : border + 3] for border in sentence_borders(text)] == ["Dr.", "He ", '"Wh', "Nob", ""]


def test_a_haystack_names_a_file_it_cannot_read(tmp_path) -> None:  # type: ignore[no-untyped-def]
    bad = tmp_path / "latin.txt"
    bad.write_bytes(b"caf\xe9")
    with pytest.raises(TaskError, match=r"latin\.txt"):
        Haystack.load([bad])
    with pytest.raises(TaskError, match="not empty"):
        Haystack([" \n"])
