"""Update tracking: the last statement about the key counts."""

from __future__ import annotations

import pytest

from memagent.errors import TaskError
from tests.tasks.made import sample


def test_the_last_value_of_the_asked_key_is_the_answer() -> None:
    for index in range(10):
        one = sample("updates", index=index)
        keys = {fact.key for fact in one.facts}
        (asked,) = (key for key in keys if key in one.question)
        history = [fact for fact in one.facts if fact.key == asked]
        assert [fact.needed for fact in history] == [False, False, False, True]
        assert one.answers == (history[-1].value,)
        assert sum(fact.needed for fact in one.facts) == 1
        assert len(one.facts) == 8
        assert len({fact.value for fact in one.facts}) == 8


def test_later_statements_say_that_something_changed() -> None:
    told = [fact.text for index in range(10) for fact in sample("updates", index=index, keys=1).facts]
    marks = ("changed", "now", "From that day on", "new")
    first, later = told[::4], [text for place, text in enumerate(told) if place % 4]
    assert not any(mark in text for text in first for mark in marks)
    assert all(any(mark in text for mark in marks) for text in later)


def test_more_keys_and_values() -> None:
    one = sample("updates", keys=3, values=6, value="word")
    assert len(one.facts) == 18


def test_impossible_options_are_refused() -> None:
    with pytest.raises(TaskError, match="1 value and 1 key"):
        sample("updates", keys=0)
