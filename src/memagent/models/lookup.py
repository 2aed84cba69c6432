"""Prompt lookup: guesses how a reply goes on from a text that it may repeat, as a new memory repeats the old one.

The guesses are checked several at a time (`memagent.models.sampler`), which is speculative decoding (arXiv 2211.17192) and
changes no reply, up to rounding.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

# Tokens that must stand in the text as they were generated last.
_CONTEXT = 2
# Tokens of one guess. More cost time where they are wrong, and gain little where they are right.
MOST = 8
# Tokens of one step, all rows together, up to which a device takes hardly longer than for one token of each row. More would
# cost more than they gain (docs/results/speed-and-memory.md); that of a GPU is not measured.
_STEP_CPU, _STEP_GPU = 16, 256


class Lookup:
    """Guesses from `text`, token ids. A place further on is preferred to an earlier one: what is kept is kept in order."""

    def __init__(self, text: Sequence[int]) -> None:
        self._text = tuple(text)
        self._ends: dict[tuple[int, ...], list[int]] = {}
        for end in range(_CONTEXT, len(self._text)):
            self._ends.setdefault(self._text[end - _CONTEXT : end], []).append(end)
        self._reached = 0

    def guess(self, reply: Sequence[int], most: int) -> Sequence[int]:
        """At most so many tokens that may follow `reply`; () if it ends with nothing that stands in the text."""
        if len(reply) < _CONTEXT:
            begun = tuple(reply) == self._text[: len(reply)]
            return self._text[len(reply) : len(reply) + most] if begun else ()
        ends = self._ends.get(tuple(reply[-_CONTEXT:]))
        if not ends:
            return ()
        later = bisect_left(ends, self._reached)
        self._reached = ends[later] if later < len(ends) else ends[0]
        return self._text[self._reached : self._reached + most]


def guessed_at_once(rows: int, device: str) -> int:
    """How many tokens are worth guessing for each of so many rows on a kind of device, "cpu" or another."""
    return max(0, min(MOST, (_STEP_CPU if device == "cpu" else _STEP_GPU) // rows - 1))
