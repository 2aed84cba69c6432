"""Word lists for made-up keys and values, split so that no evaluation word is ever seen in training.

The split is by a hash of the word itself: it does not depend on the order or the size of a list.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias

WordKind: TypeAlias = Literal["adjectives", "nouns"]
Split: TypeAlias = Literal["train", "eval"]

_EVAL_SHARE = 51  # of 256: one word in five


def split_of(word: str) -> Split:
    """Which side of the split a word is on, for ever."""
    return "eval" if hashlib.sha256(word.encode()).digest()[0] < _EVAL_SHARE else "train"


@cache
def words(kind: WordKind, split: Split) -> tuple[str, ...]:
    """The words of a list that belong to `split`, in the order of the list. Lower case, 3 to 10 ASCII letters."""
    text = files("memagent.tasks").joinpath("data", f"{kind}.txt").read_text(encoding="utf-8")
    return tuple(word for word in text.split() if split_of(word) == split)
