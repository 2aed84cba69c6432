"""Made-up keys and values, drawn without repetition."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from memagent.errors import TaskError
from memagent.tasks.wording import ValueKind
from memagent.tasks.words import Words

KeyKind: TypeAlias = Literal["pair", "phrase", "name", "noun", "coined", "number", "uuid"]

_CONSONANTS = "bcdfghjklmnpqrstvwxz"
_VOWELS = "aeiouy"
_PATIENCE = 10_000  # draws without a new text before a word list counts as exhausted


def coined(rng: random.Random, low: int = 4, high: int = 9) -> str:
    """A made-up word of `low` to `high` alternating consonants and vowels."""
    first = rng.random() < 0.5
    size = rng.randint(low, high)
    return "".join(rng.choice(_CONSONANTS if (i % 2 == 0) == first else _VOWELS) for i in range(size))


def make_key(rng: random.Random, kind: KeyKind, words: Words) -> str:
    """One key: "amber-falcon", "amber falcon", "Amber Falcon", "falcon", two coined words joined, a number or a UUID."""
    if kind == "coined":
        return coined(rng) + rng.choice("- ") + coined(rng)
    if kind == "number" or kind == "uuid":
        return make_value(rng, kind, words)
    noun = rng.choice(words.nouns)
    if kind == "noun":
        return noun
    adjective = rng.choice(words.adjectives)
    if kind == "name":
        return f"{adjective.capitalize()} {noun.capitalize()}"
    return adjective + ("-" if kind == "pair" else " ") + noun


def relative(rng: random.Random, key: str, words: Words) -> str:
    """A hard negative: another key that shares one of the two words of `key`, or some of the five groups of a UUID."""
    joint = "-" if "-" in key else " "
    parts = key.split(joint)
    if len(parts) == 5:
        kept = rng.sample(range(5), rng.randint(1, 3))
        other = make_value(rng, "uuid", words).split(joint)
        return joint.join(parts[group] if group in kept else other[group] for group in range(5))
    other = make_key(rng, "name" if key[:1].isupper() else "phrase", words).split(" ")
    if len(parts) != 2:
        return f"{other[0]}{joint}{key}"
    return joint.join((parts[0], other[1]) if rng.random() < 0.5 else (other[0], parts[1]))


def distinct_keys(rng: random.Random, count: int, kind: KeyKind, words: Words) -> list[str]:
    """`count` different keys, none a part of another. Raises TaskError if there are not enough words."""
    return distinct(count, lambda: make_key(rng, kind, words))


def distinct_values(rng: random.Random, count: int, kind: ValueKind, words: Words) -> list[str]:
    """`count` different values, none a part of another. Raises TaskError if there are not enough words."""
    return distinct(count, lambda: make_value(rng, kind, words))


def distinct(count: int, draw: Callable[[], str], known: Sequence[str] = ()) -> list[str]:
    """`count` texts from `draw`, none a part of another or of a `known` one. Raises TaskError if there are no new ones."""
    found: list[str] = []
    taken, joined = set(known), "\0".join(known)  # as a set and as one text, so that time grows with `count`
    idle = 0
    while len(found) < count:
        text = draw()
        idle += 1
        if text not in joined and taken.isdisjoint(_parts(text)):
            found.append(text)
            taken.add(text)
            joined += f"\0{text}"
            idle = 0
        elif idle > _PATIENCE:
            raise TaskError(
                f"the word list is too short: it gives {len(found)} of {count} different names; use a longer list"
            )
    return found


def _parts(text: str) -> Iterator[str]:
    """All that is contained in a text."""
    return (text[start:end] for start in range(len(text)) for end in range(start + 1, len(text) + 1))


def is_new(key: str, keys: Sequence[str]) -> bool:
    """Whether `key` neither contains one of `keys` nor is part of one."""
    return not any(key in known or known in key for known in keys)


def make_value(rng: random.Random, kind: ValueKind, words: Words, digits: int = 7) -> str:
    """A number of `digits` digits without leading zero, a noun, or a random UUID (version 4)."""
    if kind == "number":
        return str(rng.randrange(10 ** (digits - 1), 10**digits))
    if kind == "uuid":
        return str(uuid.UUID(int=rng.getrandbits(128), version=4))
    return rng.choice(words.nouns)
