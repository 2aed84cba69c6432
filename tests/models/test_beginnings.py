"""Which prompts begin alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memagent.models.beginnings import Group, grouped


def test_prompts_of_the_same_chunk_are_a_group() -> None:
    one, other = list(range(100)), list(range(200, 300))
    prompts = [[*other, 1], [*one, 1, 2], [*other, 2, 3, 4], [*one, 2]]
    assert grouped(prompts) == [Group(100, [1, 3]), Group(100, [0, 2])]


def test_a_few_words_in_common_make_no_group() -> None:
    prompts = [[*range(10), *range(start, start + 50)] for start in (100, 200)]
    assert [group.members for group in grouped(prompts)] == [[0], [1]]
    assert [group.common for group in grouped(prompts)] == [59, 59]


def test_one_that_another_goes_on_from_keeps_a_token_of_its_own() -> None:
    assert grouped([[1, 2, 3, 4], [1, 2, 3, 4, 5]]) == [Group(3, [0, 1])]


def test_of_nothing() -> None:
    assert grouped([]) == []


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple), unique=True, max_size=12))
def test_groups_share_what_they_say_and_half_of_each_prompt(prompts: list[tuple[int, ...]]) -> None:
    groups = grouped(prompts)
    assert sorted(index for group in groups for index in group.members) == list(range(len(prompts)))
    for group in groups:
        members = [prompts[index] for index in group.members]
        assert len({member[: group.common] for member in members}) == 1
        assert all(len(member) > group.common for member in members)
        if len(members) > 1:
            assert 2 * group.common >= max(map(len, members))
