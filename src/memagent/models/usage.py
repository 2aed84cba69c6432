"""Detects whether a server silently cut a prompt, from its counts of the prompt's tokens.

Some servers cut a prompt that is too long and answer what is left. Their count is then below ours; but a low count alone
proves nothing: proxies leave out cached tokens, and some servers count in another way. What tells a cut is that the count
*stops growing*. So a low count is compared with the counts of the first half and the first quarter of the same prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from memagent.errors import ConfigError

# "check": a low count is looked into; "trust": a low count is a cut; "ignore": counts are never compared.
Usage: TypeAlias = Literal["check", "trust", "ignore"]

# A plateau below that is a server that leaves out what it has in its cache: no window is as small.
_LEAST_WINDOW = 32
# Counts may lie below what their growth predicts by so much: text is not of one density.
_TOLERANCE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """A server's counts of a whole prompt, of its first half and of its first quarter, in tokens."""

    whole: int
    half: int
    quarter: int

    @property
    def cut(self) -> bool:
        """Whether the prompt was cut: its count is that of a shorter one, or less than the growth up to half predicts."""
        if min(self.whole, self.half, self.quarter) < _LEAST_WINDOW:
            return False
        growth = self.half - self.quarter
        if growth * 10 <= self.half:
            return self.whole <= self.half / _TOLERANCE  # a plateau
        return self.whole < _TOLERANCE * (self.half + 2 * growth)


def check_usage(usage: str) -> Usage:
    """The way to treat counts. Raises ConfigError for an unknown one."""
    for known in get_args(Usage):
        if usage == known:
            return known  # type: ignore[no-any-return]  # a literal of the type
    raise ConfigError(f"usage is {usage!r}; it must be one of {', '.join(get_args(Usage))}")
