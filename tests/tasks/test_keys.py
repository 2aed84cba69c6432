"""Keys and values: made up, distinct, on one side of the split."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.errors import TaskError
from memagent.tasks.keys import distinct, distinct_keys, distinct_values, is_new, make_key, make_value, relative
from memagent.tasks.samples import generator
from memagent.tasks.words import Words, shipped_words

WORDS = shipped_words("eval")


def test_keys_are_distinct_and_relatives_share_one_word() -> None:
    rng = generator(0, "keys", 0)
    keys = distinct_keys(rng, 50, "pair", WORDS)
    assert len(set(keys)) == 50
    assert all(is_new(key, [k for k in keys if k != key]) for key in keys)
    for key in keys:
        other = relative(rng, key, WORDS)
        assert other == key or len(set(other.split("-")) & set(key.split("-"))) == 1


@given(st.lists(st.text("ab-", min_size=1, max_size=4), max_size=40), st.lists(st.text("ab", min_size=1), max_size=3))
def test_texts_are_taken_unless_one_is_a_part_of_another(drawn: list[str], known: list[str]) -> None:
    expected: list[str] = []
    for text in drawn:
        if is_new(text, [*known, *expected]):
            expected.append(text)
    assert distinct(len(expected), iter(drawn).__next__, known) == expected


def test_the_kinds_of_keys_and_values() -> None:
    rng, words = generator(0, "kinds", 0), Words(("old",), ("hat",))
    kinds = ("pair", "phrase", "name", "noun")
    assert [make_key(rng, kind, words) for kind in kinds] == ["old-hat", "old hat", "Old Hat", "hat"]
    assert make_value(rng, "word", words) == "hat"
    assert len(make_value(rng, "number", words)) == 7
    assert UUID(make_value(rng, "uuid", words)).version == 4
    assert UUID(make_key(rng, "uuid", words)).version == 4
    assert make_key(rng, "number", words).isdigit()


def test_a_relative_of_a_key_of_one_word_holds_it() -> None:
    assert relative(generator(0, "relative", 0), "hat", WORDS).endswith(" hat")


def test_no_value_is_a_part_of_another() -> None:
    values = distinct_values(generator(0, "values", 0), 100, "word", WORDS)
    assert all(is_new(value, [other for other in values if other != value]) for value in values)


def test_a_word_list_that_is_too_short_is_refused() -> None:
    with pytest.raises(TaskError, match="too short"):
        distinct_keys(generator(0, "few", 0), 3, "noun", Words(("a",), ("hat", "cap")))
    assert sorted(distinct(2, iter(["a", "a", "b"]).__next__)) == ["a", "b"]
