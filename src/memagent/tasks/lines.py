"""Haystacks made of lines: the same stock sentences again and again, or generated ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from memagent.core.types import Tokenizer
from memagent.tasks.haystack import Haystack

_PROBE = 64, 1024  # fewest and most lines from which the length of all is estimated
_SPARE = 1.03


@cache
def noise_haystack(noise: str) -> Haystack:
    """A line of stock sentences, repeated for ever. (The same value for the same noise: its tokens are counted once.)"""
    return Haystack([noise], lines=True)


def generated_haystack(line: Callable[[], str], tokenizer: Tokenizer, tokens: int) -> Haystack:
    """As many lines as make `tokens` tokens, and a few to spare. The first lines are the same whatever `tokens` is."""
    probe = min(_PROBE[1], max(_PROBE[0], tokens // 32))
    lines = [line() for _ in range(probe)]
    have = tokenizer.count("\n".join(lines))
    lines += [line() for _ in range(int(probe * (tokens / have * _SPARE - 1)) + 1)]
    return Haystack(["\n".join(lines)], lines=True, repeat=False)
