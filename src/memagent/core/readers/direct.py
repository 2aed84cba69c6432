"""The whole document in one prompt: the best there is for a document that fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memagent.core.chunking import Cutter
from memagent.core.readers.chunkwise import Spans
from memagent.core.readers.excerpt import ExcerptReader, fits
from memagent.core.reading import Plan
from memagent.errors import TooLongError


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectReader(ExcerptReader):
    """The whole document at once; refused where it does not fit the window."""

    name: ClassVar[str] = "direct"
    summary: ClassVar[str] = "Shows the whole document in one prompt; it must fit the window."

    def takes_all(self, plan: Plan, room: int) -> bool:
        return not self.through_memory or fits(plan.text, plan.tokenizer, room)  # else the window is the limit

    def chosen(self, plan: Plan, room: int, cutter: Cutter) -> Spans:
        raise TooLongError(
            f"the document does not fit the window whole: it has more than {room} tokens: use the reader 'memory'"
        )
