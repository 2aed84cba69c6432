"""Made-up keys and values, drawn without repetition."""

from __future__ import annotations

import random
from typing import Literal, TypeAlias

from memagent.tasks.wording import ValueKind
from memagent.tasks.words import Split, words

KeyKind: TypeAlias = Literal["pair", "phrase", "name", "noun", "coined"]

_CONSONANTS = "bcdfghjklmnpqrstvwxz"
_VOWELS = "aeiouy"


def coined(rng: random.Random, low: int = 4, high: int = 9) -> str:
    """A word that does not exist: letters in turns, `low` to `high` of them."""
    first = rng.random() < 0.5
    size = rng.randint(low, high)
    return "".join(rng.choice(_CONSONANTS if (i % 2 == 0) == first else _VOWELS) for i in range(size))


def make_key(rng: random.Random, kind: KeyKind, split: Split) -> str:
    """One key: "amber-falcon", "amber falcon", "Amber Falcon", "falcon" or two coined words joined."""
    if kind == "coined":
        return coined(rng) + rng.choice("- ") + coined(rng)
    noun = rng.choice(words("nouns", split))
    if kind == "noun":
        return noun
    adjective = rng.choice(words("adjectives", split))
    if kind == "name":
        return f"{adjective.capitalize()} {noun.capitalize()}"
    return adjective + ("-" if kind == "pair" else " ") + noun


def relative(rng: random.Random, key: str, split: Split) -> str:
    """Another key that shares one of the two words of `key`: what a careless reader takes for it."""
    joint = "-" if "-" in key else " "
    parts = key.split(joint)
    other = make_key(rng, "name" if key[:1].isupper() else "pair", split).replace("-", " ").split(" ")
    if len(parts) != 2:
        return f"{other[0]}{joint}{key}"
    return joint.join((parts[0], other[1]) if rng.random() < 0.5 else (other[0], parts[1]))


def distinct_keys(rng: random.Random, count: int, kind: KeyKind, split: Split) -> list[str]:
    """`count` different keys, none a part of another one."""
    keys: list[str] = []
    while len(keys) < count:
        key = make_key(rng, kind, split)
        if is_new(key, keys):
            keys.append(key)
    return keys


def is_new(key: str, keys: list[str]) -> bool:
    """Whether no text can be about `key` and one of `keys` at once."""
    return not any(key in known or known in key for known in keys)


def make_value(rng: random.Random, kind: ValueKind, split: Split, digits: int = 7) -> str:
    """A number of `digits` digits without leading zero, or a noun."""
    if kind == "number":
        return str(rng.randrange(10 ** (digits - 1), 10**digits))
    return rng.choice(words("nouns", split))
