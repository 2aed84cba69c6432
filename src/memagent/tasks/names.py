"""Made-up names of people, towns, countries, companies, works, contracts and ships, on one side of the split of words."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal, TypeAlias

from memagent.errors import TaskError
from memagent.tasks.words import Split, split_of

Kind: TypeAlias = Literal["person", "town", "country", "company", "work", "contract", "ship"]

_ONSETS = "b br c ch cl d dr f g gr h j k l m n p pl pr r s sh st t th tr v w z".split()
_VOWELS = "a e i o u a e i o ai ea oa".split()
_SYLLABLES = [onset + vowel for onset in _ONSETS for vowel in _VOWELS]
_CODAS = "l m n r s t th nd rn ld sk v x".split()
_ENDINGS: dict[Kind, tuple[str, ...]] = {
    "person": ("",),
    "town": ("", "ton", "mouth", "bury", "wick"),
    "country": ("ia", "land", "ania", "ora"),
    "company": ("",),
    "work": ("",),
    "contract": ("",),
    "ship": ("", "ia", "ora"),
}
_COMPANIES = "Works Mills Press Foundry Shipping Brewery Glassworks Railways Instruments Textiles".split()
WORKS = "Letters Ballads Voyage Orchard Winter Garden Lantern Harvest Mirror Testament Bridges Sleepers".split()

_PATIENCE = 1000  # draws without a new word before a word list counts as exhausted
_CONTRACTS = "Contract Agreement Lease Licence Loan Policy Charter".split()
_SHIPS = "SS MV HMS".split()


def coined(rng: random.Random, split: Split, ending: str = "") -> str:
    """A capitalised word of two or three syllables and the ending, that belongs to `split`."""
    while True:
        syllables = rng.choices(_SYLLABLES, k=rng.choice((2, 2, 3)))
        word = "".join(syllables) + (rng.choice(_CODAS) if not ending or ending[0] in "aeiou" else "n") + ending
        if split_of(word) == split:
            return word.capitalize()


class Names:
    """Draws names that share no made-up word, unless a similar name is requested. `words`: what they are made of; empty:
    of coined words."""

    def __init__(self, rng: random.Random, split: Split, words: Sequence[str] = ()) -> None:
        self._rng = rng
        self._split = split
        self._words = words
        self._coined: set[str] = set()
        self._given: set[str] = set()

    def new(self, kind: Kind, like: str = "") -> str:
        """A new name that shares a part with `like`, a name of the same kind.

        It shares none if names of this kind have no parts, or if all names with this part are used.
        """
        similar = bool(like) and self._can_lend(kind, like)
        while True:
            name = self._like(kind, like) if similar else self._fresh(kind)
            if name not in self._given:
                self._given.add(name)
                return name

    def _fresh(self, kind: Kind) -> str:
        if kind == "person":
            return f"{self._word(kind)} {self._word(kind)}"
        if kind == "company":
            return f"{self._word(kind)} {self._rng.choice(_COMPANIES)}"
        if kind == "work":
            return f"The {self._word(kind)} {self._rng.choice(WORKS)}"
        if kind == "contract":
            return f"{self._rng.choice(_CONTRACTS)} {self._word(kind)[:3].upper()}-{self._number()}"
        if kind == "ship":
            return f"{self._rng.choice(_SHIPS)} {self._word(kind)}"
        return self._word(kind)

    def _can_lend(self, kind: Kind, name: str) -> bool:
        if kind in ("person", "contract"):
            return True
        first = name.removeprefix("The ").split(" ")[0]
        if kind == "company":
            return any(f"{first} {last}" not in self._given for last in _COMPANIES)
        return kind == "work" and any(f"The {first} {last}" not in self._given for last in WORKS)

    def _like(self, kind: Kind, name: str) -> str:
        first, last = name.removeprefix("The ").split(" ")
        if kind == "person":
            return f"{first} {self._word(kind)}" if self._rng.random() < 0.5 else f"{self._word(kind)} {last}"
        if kind == "company":
            return f"{first} {self._rng.choice(_COMPANIES)}"
        if kind == "contract":
            return f"{first} {last.split('-')[0]}-{self._number()}"
        return f"The {first} {self._rng.choice(WORKS)}"

    def _word(self, kind: Kind) -> str:
        tries = 0
        while True:
            if self._words:
                word = self._rng.choice(self._words).capitalize()
            else:
                word = coined(self._rng, self._split, self._rng.choice(_ENDINGS[kind]))
            # One word inside another would make one name a part of another.
            if not any(word.lower() in known or known in word.lower() for known in self._coined):
                self._coined.add(word.lower())
                return word
            tries += 1
            if self._words and tries == _PATIENCE:
                raise TaskError(
                    f"the word list is too short: its {len(self._words)} words give {len(self._coined)} of the names"
                    " that are needed; use a longer list, or coined names"
                )

    def _number(self) -> int:
        """Of a contract: as many digits as any other, so that none is a part of another."""
        return self._rng.randrange(1000, 10_000)
