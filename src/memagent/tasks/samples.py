"""The values every task produces, and the generator every task draws from.

Offsets are characters, half open. A sample is a complete exercise: a document, a question about it, the accepted answers
and the facts planted in the document, each at its exact place.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["any", "all"]
Count: TypeAlias = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A sentence planted at characters [start, end) of the document: it states that `key` has `value`."""

    text: str
    start: int
    end: int
    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One document, one question.

    `answers` are alternatives (mode "any") or parts that are all required (mode "all"). `facts` are the planted
    sentences, asked for or not, in document order. `tokens` is the length of the document.
    """

    id: str
    task: str
    question: str
    document: str
    answers: tuple[str, ...]
    mode: Mode
    facts: tuple[Fact, ...]
    tokens: int
    seed: int
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def gold(self) -> str:
        """An answer that scores 1."""
        return self.answers[0] if self.mode == "any" else ", ".join(self.answers)


def generator(seed: int, task: str, index: int) -> random.Random:
    """The random numbers of one sample. The same three values give the same numbers on every machine."""
    digest = hashlib.sha256(f"{seed}\x1f{task}\x1f{index}".encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))
