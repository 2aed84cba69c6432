"""Text → score. The reward in training and the metric in evaluation are the same named functions.

Every scorer returns a number in [0, 1]: 1 for a right answer, 0 for an empty one.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["any", "all"]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Lower case, compatibility form, no punctuation, no English articles, single spaces (as SQuAD's evaluation does)."""
    text = unicodedata.normalize("NFKC", text).lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def strict(answer: str, accepted: Sequence[str], mode: Mode = "any") -> float:
    """`any`: 1 if the answer equals an accepted one after normalisation. `all`: the fraction of required answers found.

    For `all` the answer is read as a list, separated by commas, semicolons, "and" or line breaks; an accepted answer with a
    separator in it is found as a run of items.
    Raises ValueError if no answer is accepted.
    """
    if not accepted:
        raise ValueError("no accepted answer to compare with")
    if mode == "any":
        given = normalize(answer)
        return float(bool(given) and any(given == normalize(one) for one in accepted))
    items = _items(answer)
    return sum(f"|{_items(one)}|" in f"|{items}|" for one in accepted) / len(accepted)


def _items(text: str) -> str:
    """The normalised items of a list, joined by bars."""
    items = (normalize(item) for item in re.split(r"[,;\n]|\band\b", text))
    return "|".join(item for item in items if item)
