"""When to accept a token of the old memory in the new one. Most turns of the model leave the memory as it is.

Speculative decoding takes a draft token only if the model would have generated it. The embedded model keeps its memories
longer if a token of the old memory is accepted when it is merely likely enough (typical acceptance, arXiv 2211.17192,
appendix A.5). This is lossy: replies differ from those without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """How likely a token of the old memory must be to be accepted.

    threshold    the acceptance threshold: a token of the memory, or its end, is accepted if its probability is more than
                 this share of the likeliest token's; with 1 it must be the likeliest
    whole_words  accepts all of a word whose first token is accepted (for text with spaces between words)
    placeholder  the end of a line that has no value yet; it must always be the likeliest, so that missing values are found
    forms        drafts that are no memory but a fixed reply; all of it must always be the likeliest
    """

    threshold: float = 0.001
    whole_words: bool = True
    placeholder: str = "not yet"
    forms: tuple[str, ...] = ("nothing new",)

    def reply(self, draft: str) -> str:
        """The draft as the model writes it: a fixed form, unlike a memory, begins with a space."""
        return f" {draft}" if draft in self.forms else draft

    def acceptance(self, memory: str, spans: Iterable[tuple[int, int]], end: bool) -> Callable[[Tensor], Tensor]:
        """Which tokens of a draft are accepted besides those that are the likeliest.

        `spans` are the tokens' characters in the memory; `end`: a stop token follows them. The function takes the
        logarithms [D] of how much less likely than the likeliest token each of the first D tokens is, and gives D booleans.
        """
        last = 1.0 if memory.strip() in self.forms else self.threshold
        return above([*self.shares(memory, spans), *([last] if end else [])])

    def shares(self, memory: str, spans: Iterable[tuple[int, int]]) -> list[float]:
        """The share of the likeliest token's probability that each token needs to be accepted."""
        if memory.strip() in self.forms:
            return [1.0 for _ in spans]
        ends = re.finditer(f"{re.escape(self.placeholder)}$", memory, re.MULTILINE) if self.placeholder else ()
        empty = [match.span() for match in ends]

        def share(start: int, end: int) -> float:
            if any(start < last and first < end for first, last in empty):
                return 1.0
            within = start > 0 and not re.search(r"\s", memory[start - 1 : end])
            return 0.0 if within and self.whole_words else self.threshold

        return [share(start, end) for start, end in spans]


def above(shares: Sequence[float]) -> Callable[[Tensor], Tensor]:
    """The rule that accepts each token with more than its share of the likeliest token's probability."""

    def accept(log_ratio_D: Tensor) -> Tensor:
        return log_ratio_D > log_ratio_D.new_tensor(shares[: len(log_ratio_D)]).log()

    return accept
