"""Drafts of a model whose turns mostly leave the memory as it is: the memory itself.

Decisions 0016 (they save time) and 0017 (they may be held to).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Drafts(BaseModel):
    """How far a draft stands. Table `[drafts]` of a model's memagent.toml; it may be empty.

    lenience: a token of the memory, or its end, stands if its probability is more than this share of the likeliest token's;
    with 1 it has to be the likeliest. placeholder: what a line ends with that holds nothing yet. placeholder_lenience: the
    share for its tokens; with 1 what is missing gives way as soon as something else is likelier. After the first token
    that gives way, a turn is generated as ever.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    lenience: float = Field(default=1.0, gt=0, le=1)
    placeholder: str = ""
    placeholder_lenience: float = Field(default=1.0, gt=0, le=1)

    @model_validator(mode="after")
    def _placeholder_is_named(self) -> Drafts:
        if self.placeholder_lenience < 1 and not self.placeholder:
            raise ValueError(f"placeholder_lenience is {self.placeholder_lenience}, but no placeholder is named")
        return self

    @property
    def exact(self) -> bool:
        """Whether replies are those of greedy decoding, up to rounding."""
        return self.lenience == self.placeholder_lenience == 1

    @property
    def version(self) -> str:
        """What replies depend on, for an engine's identity; nothing if they are those of greedy decoding."""
        return "" if self.exact else f":{self.lenience}:{self.placeholder}:{self.placeholder_lenience}"

    def empty(self, memory: str, spans: Iterable[tuple[int, int]]) -> list[bool]:
        """Which tokens are of a placeholder. `spans`: each token's characters in the memory, from and up to."""
        ends = re.finditer(f"{re.escape(self.placeholder)}$", memory, re.MULTILINE) if self.placeholder else ()
        places = [match.span() for match in ends]
        return [any(start < last and first < end for first, last in places) for start, end in spans]

    def shares(self, memory: str, spans: Iterable[tuple[int, int]]) -> list[float]:
        """The share of the likeliest token's probability that each token must have to stand. `spans` as for `empty`."""
        return [self.placeholder_lenience if empty else self.lenience for empty in self.empty(memory, spans)]
