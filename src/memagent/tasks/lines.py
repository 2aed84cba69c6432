"""Haystacks of lines: repeated stock sentences, or generated lines."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from memagent.core.types import Tokenizer
from memagent.tasks.haystack import Haystack

_PROBE = 64, 1024  # fewest and most lines from which the length of all is estimated
_SPARE = 1.03


@cache
def noise_haystack(noise: str) -> Haystack:
    """A line of stock sentences, repeated without end. (The same value for the same noise: its tokens are counted once.)"""
    return Haystack([noise], lines=True)


def generated_haystack(line: Callable[[], str], tokenizer: Tokenizer, tokens: int) -> Haystack:
    """Lines of slightly more than `tokens` tokens. The first lines do not depend on `tokens`."""
    probe = min(_PROBE[1], max(_PROBE[0], tokens // 32))
    lines = [line() for _ in range(probe)]
    have = tokenizer.count("\n".join(lines))
    lines += [line() for _ in range(int(probe * (tokens / have * _SPARE - 1)) + 1)]
    return Haystack(["\n".join(lines)], lines=True, repeat=False)
