"""Scattered retrieval: all things of one owner, all over the document."""

from __future__ import annotations

import pytest

from memagent.errors import TaskError
from tests.tasks.made import sample


@pytest.mark.parametrize("count", [10, 20, 50])
def test_each_tenth_of_the_document_says_something(count: int) -> None:
    for index in range(5):
        one = sample("scattered", 40_000, index=index, count=count)
        places = [fact.start / len(one.document) for fact in one.facts if fact.needed]
        assert len(places) == count
        assert all(any(tenth / 10 - 0.01 <= place <= tenth / 10 + 0.11 for place in places) for tenth in range(10))


def test_everything_of_the_owner_and_nothing_of_others() -> None:
    one = sample("scattered")
    owners = {fact.key for fact in one.facts if fact.needed}
    assert len(owners) == 1
    assert owners.pop() in one.question
    assert sum(fact.needed for fact in one.facts) == len(set(one.answers)) == 20
    others = [fact for fact in one.facts if not fact.needed]
    assert len(others) == 20
    assert len({fact.key for fact in others}) == 4
    assert not any(fact.key in one.question for fact in others)
    assert not {fact.value for fact in others} & set(one.answers)
    assert one.mode == "all"


def test_several_wordings() -> None:
    one = sample("scattered")
    assert len({fact.text.replace(fact.key, "").replace(fact.value, "") for fact in one.facts}) >= 6


@pytest.mark.parametrize("wrong", [{"count": 0}, {"others": -1}, {"owners": 0}])
def test_impossible_options_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(TaskError, match="count must be 1 to 500"):
        sample("scattered", **wrong)
