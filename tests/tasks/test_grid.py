"""The position grid: depth follows from the index."""

from __future__ import annotations

import pytest

from memagent.errors import TaskError
from tests.tasks.made import sample


def test_eleven_depths_in_turn() -> None:
    for index in range(22):
        one = sample("grid", 40_000, index=index)
        depth = index % 11 / 10
        assert one.meta["depth"] == depth
        assert abs(one.facts[0].start / len(one.document) - depth) < 0.01


def test_the_first_and_the_last_depth_are_the_ends() -> None:
    first, last = sample("grid", 700, index=0), sample("grid", 700, index=10)
    assert first.facts[0].start == 0
    assert last.facts[0].end >= len(last.document) - 1


@pytest.mark.parametrize("haystack", ["noise", "essay", "needle"])
def test_other_depths_and_haystacks(haystack: str) -> None:
    depths = [sample("grid", index=index, depths=3, haystack=haystack).meta["depth"] for index in range(4)]
    assert depths == [0, 0.5, 1, 0]


def test_one_depth_is_no_grid() -> None:
    with pytest.raises(TaskError, match="at least 2 depths"):
        sample("grid", depths=1)
