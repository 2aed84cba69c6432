"""Drafts of a model whose turns mostly leave the memory as it is: the memory itself.

Decisions 0016 (they save time) and 0017 (they may be held to).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field


class Drafts(BaseModel):
    """How far a draft stands. Table `[drafts]` of a model's memagent.toml; it may be empty.

    lenience: a token of the memory, or its end, stands if its probability is more than this share of the likeliest token's;
    with 1 it has to be the likeliest. whole_words: a word of the memory whose first token stands, stands whole (for text
    with spaces between words). placeholder: what a line ends with that holds nothing yet; it has to be the likeliest in any
    case, since what is missing should be found. After the first token that gives way, a turn is generated as ever.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    lenience: float = Field(default=1.0, gt=0, le=1)
    whole_words: bool = False
    placeholder: str = ""

    @property
    def exact(self) -> bool:
        """Whether replies are those that would be generated without drafts, up to rounding."""
        return self.lenience == 1 and not self.whole_words

    def shares(self, memory: str, spans: Iterable[tuple[int, int]]) -> list[float]:
        """The share of the likeliest token's probability that each token must have to stand. `spans`: its characters, from
        and up to."""
        ends = re.finditer(f"{re.escape(self.placeholder)}$", memory, re.MULTILINE) if self.placeholder else ()
        empty = [match.span() for match in ends]

        def share(start: int, end: int) -> float:
            if any(start < last and first < end for first, last in empty):
                return 1.0
            within = start > 0 and not re.search(r"\s", memory[start - 1 : end])
            return 0.0 if within and self.whole_words else self.lenience

        return [share(start, end) for start, end in spans]
