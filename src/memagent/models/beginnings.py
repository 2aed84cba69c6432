"""Which prompts begin alike, so that what they have in common is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

# How much of its longest prompt a group must have in common.
_SHARE = 0.5


@dataclass(slots=True)
class Group:
    """Prompts that have their first `common` tokens in common, by their numbers. Each has at least one token more."""

    common: int
    members: list[int]


def grouped(prompts: Sequence[Sequence[int]]) -> list[Group]:
    """The prompts, all different, in groups that have half of each in common; one that begins like no other is a group of
    its own, with all but its last token in common."""
    groups: list[Group] = []
    longest = 0
    before: Sequence[int] = ()
    for index in sorted(range(len(prompts)), key=lambda index: tuple(prompts[index])):
        prompt = prompts[index]
        if groups:
            common = min(groups[-1].common, _alike(before, prompt))
            if common >= _SHARE * max(longest, len(prompt)):
                groups[-1].members.append(index)
                groups[-1].common, longest, before = common, max(longest, len(prompt)), prompt
                continue
        groups.append(Group(len(prompt) - 1, [index]))
        longest, before = len(prompt), prompt
    return groups


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
