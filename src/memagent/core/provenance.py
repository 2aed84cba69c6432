"""Where each line of a memory came from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memagent.core.types import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class LineOrigin:
    """A line of the memory, the number of the turn that first wrote it and the spans shown in that turn.

    First means: since then the line has been in every memory. A line that was dropped and written again counts from its
    return.
    """

    line: str
    turn: int
    spans: tuple[Span, ...] = ()


class Provenance:
    """Follows the memory turn by turn. Holds the lines of the present memory only, whatever the document's length."""

    def __init__(self) -> None:
        self._origins: dict[str, LineOrigin] = {}

    def update(self, turn: int, spans: tuple[Span, ...], memory: str) -> None:
        """Takes in the memory after `turn`, in which `spans` were shown."""
        lines = dict.fromkeys(line.strip() for line in memory.splitlines() if line.strip())
        self._origins = {line: self._origins.get(line) or LineOrigin(line=line, turn=turn, spans=spans) for line in lines}

    @property
    def origins(self) -> tuple[LineOrigin, ...]:
        """One entry per distinct line of the present memory, in its order."""
        return tuple(self._origins.values())


def provenance(memories: Iterable[tuple[int, tuple[Span, ...], str]]) -> tuple[LineOrigin, ...]:
    """Origins of the lines of the last memory of a sequence (turn, spans shown, memory after it)."""
    follower = Provenance()
    for turn, spans, memory in memories:
        follower.update(turn, spans, memory)
    return follower.origins
