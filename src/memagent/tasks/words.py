"""Words for made-up keys and values, split so that no evaluation word is ever seen in training.

The split is by a hash of the word itself: it does not depend on the order or the size of a list.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal, TypeAlias

from memagent.errors import TaskError

Split: TypeAlias = Literal["train", "eval"]

_EVAL_SHARE = 51  # of 256: one word in five
_FEWEST = 16


@dataclass(frozen=True, slots=True)
class Words:
    """The words to draw from. Both kinds are equal if the user gave one list."""

    adjectives: tuple[str, ...]
    nouns: tuple[str, ...]


def split_of(word: str) -> Split:
    """The split that a word belongs to; it never changes."""
    return "eval" if hashlib.sha256(word.encode()).digest()[0] < _EVAL_SHARE else "train"


@cache
def shipped_words(split: Split) -> Words:
    """The shipped words that belong to `split`, in the order of the lists. Lower case, 3 to 10 ASCII letters."""
    folder = files("memagent.tasks").joinpath("data")
    lists = (folder.joinpath(name).read_text("utf-8").split() for name in ("adjectives.txt", "nouns.txt"))
    adjectives, nouns = (tuple(word for word in words if split_of(word) == split) for words in lists)
    return Words(adjectives, nouns)


def load_words(path: Path, split: Split) -> Words:
    """The words of a UTF-8 file, one per line, that belong to `split`. Raises TaskError for a file with too few of them."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: cannot be read as UTF-8 text: {error}") from error
    found = tuple(dict.fromkeys(word for word in lines if split_of(word) == split))
    if len(found) < _FEWEST:
        raise TaskError(
            f"{path}: {len(found)} different words belong to the split {split!r} (one in five is for evaluation, the"
            f" others for training), {_FEWEST} are needed: give a longer list, one word a line"
        )
    return Words(found, found)
