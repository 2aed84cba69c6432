"""The form of the embedded model's memories, and how its replies fail.

Its memory has one line for each thing asked for, "- key: value". A reply of another form is an error that would erase the
memory. A reply that is too long nearly always repeats its last value or line until the budget ends. Without the repetitions
it is usually right; but only a first memory is accepted so without a second try, because there is no memory to lose yet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile("- .+: .+")
_WORD_GOES_ON = re.compile(r"(?<=\w)\w*")
_LINE_GOES_ON = re.compile(r"(?<=[^\n]).*")


@dataclass(frozen=True, slots=True)
class FactLines:
    """Implements `memagent.core.MemoryCheck` for memories of lines "- key: value"."""

    name: str = "fact-lines"

    def shorten(self, reply: str, memory: str) -> tuple[str, bool]:
        """The reply without its loop; True if there is no memory yet and the reply has the form of one."""
        once = without_loop(reply)
        return once, not memory and self.accepts(once)

    def accepts(self, reply: str) -> bool:
        """Whether every line of the reply has the form."""
        return all(_LINE.fullmatch(line) for line in reply.splitlines())


def without_loop(reply: str) -> str:
    """The reply with a loop at its end once, up to the end of a line or word: "- a: 1, 2, 2, 2, 2, " is "- a: 1, 2".

    A loop comes at least three times and is a quarter of the reply; without one, the reply is returned as it is.
    """
    size = len(reply)
    for period in range(1, size // 3 + 1):
        if reply[size - 2 * period :] != reply[size - 3 * period : size - period]:
            continue
        start = size - 3 * period
        while start and reply[start - 1] == reply[start - 1 + period]:
            start -= 1
        if 4 * (size - start) >= size:
            end = start + period
            begun = _LINE_GOES_ON if "\n" in reply[start:end] else _WORD_GOES_ON
            rest = begun.match(reply, end, end + period)
            return reply[: end + (len(rest[0]) % period if rest else 0)].rstrip()
    return reply
