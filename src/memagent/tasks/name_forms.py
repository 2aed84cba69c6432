"""The forms that names take: "Tolle & Sons" and "Bank of Tolle" beside the "Tolle Mills" of `names`."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from memagent.tasks.names import WORKS, Kind, Names
from memagent.tasks.words import Split

HELD_OUT = 3  # of the forms of a kind, the last ones: they are never trained on

# {w}, {v} and {u} are made-up words, {i} is an initial, {n} a number of four digits, and {t} a noun of titles. No form ends
# with a full stop, which would end a sentence, or begins with a small letter.
FORMS: dict[Kind, tuple[str, ...]] = {
    "person": (
        "{w} {v}", "{w} {i}. {v}", "Dr {w} {v}", "{w} van {v}", "{w} de {v}", "{w} {v}-{u}", "{w} {v} {u}", "Sir {w} {v}",
        "{w} O'{v}", "Professor {v}", "Mrs {v}", "{w} ibn {v}", "{i}. {v}", "{w} the Elder of {v}",
        "Lady {w} {v}", "{w} von {v}", "Mr {v}",
    ),
    "town": (
        "{w}", "Saint {w}", "New {w}", "Port {w}", "{w} Hill", "{w}-on-Sea", "Upper {w}", "{w} Falls", "{w} Bay",
        "Fort {w}", "Bad {w}", "{w} upon {v}", "Old {w}", "{w} Springs", "Mount {w}",
    ),
    "country": (
        "{w}", "South {w}", "New {w}", "East {w}", "Greater {w}", "{w} Islands", "{w} and {v}", "Lower {w}",
        "North {w}", "{w} Republic", "West {w}",
    ),
    "company": (
        "{w} {v}", "{w} & Sons", "{w} & {v}", "{w} Brothers", "{w} and Daughters", "{w} Ltd", "{w} {v} Group",
        "{w} Holdings", "{w} Bank", "Bank of {w}", "{w} AG", "{w} GmbH", "{w} Inc", "{w}, {v} & Co", "{w} Foods",
        "{w} Insurance", "{w} Media", "{w} Partners", "{w} Logistics", "First {w} Trust", "{w} Energy", "{w} Motors",
        "General {w}", "{w} Pharma", "The {w} Company", "{w}-{v}", "{w} & Company", "United {w}", "{w} Software",
    ),
    "work": (
        "A {t} in {w}", "The {t} of {w}", "{w} and {v}", "My {t} with {w}", "{w}'s {t}", "Notes on {w}", "Return to {w}",
        "The {w} Affair", "A History of {w}", "{w} at Dawn", "Letters from {w}", "What {w} Knew", "{w}, or the {t}",
        "Nine Days in {w}", "Beyond {w}", "The Last {t} of {w}", "Leaving {w}",
    ),
    "contract": (
        "Contract No {n}", "Order {n}/{i}", "Lease of {w} House", "{w} Lease", "Framework Agreement {w}", "Policy No {n}",
        "Service Agreement {n}", "{w} Licence", "{w}-{v} Charter", "Loan {n}-{i}", "{w} Accord", "Lease No {n}",
        "{w} Agreement", "Treaty of {w}", "Supply Contract {n}",
    ),
    "ship": (
        "MS {w}", "RMS {w}", "{w} Star", "Queen {w}", "Lady {w}", "{w} Express", "Spirit of {w}", "Princess {w}",
        "Star of {w}", "{w}", "The {w}", "{w} {v}", "Duke of {w}", "{w} Queen", "USS {w}",
    ),
}  # fmt: skip

_WORD = re.compile(r"{([wvu])}")
_PATIENCE = 100  # draws that are like names already given before one that is not like any


class FormedNames(Names):
    """Draws names in many forms, of which `forms` says whether they are those for training or for evaluation."""

    def __init__(self, rng: random.Random, split: Split, words: Sequence[str] = (), forms: Split = "train") -> None:
        super().__init__(rng, split, words)
        self._forms = {kind: of[:-HELD_OUT] if forms == "train" else of[-HELD_OUT:] for kind, of in FORMS.items()}
        self._made: dict[str, tuple[str, list[str]]] = {}  # name → its form and words

    def new(self, kind: Kind, like: str = "") -> str:
        """A new name. It has a word of `like`, a name of the same kind, or its form, as long as there is one."""
        form, words = self._made.get(like, ("", []))
        lending = [one for one in self._forms[kind] if _WORD.search(one)] if words else [form]
        for _ in range(_PATIENCE if like else 0):
            one = self._rng.choice(lending)
            if name := self._given_as(kind, one, self._rng.choice(words) if words else ""):
                return name
        while True:
            if name := self._given_as(kind, self._rng.choice(self._forms[kind]), ""):
                return name

    def _given_as(self, kind: Kind, form: str, word: str) -> str:
        """A name of this form and with this word; "" if it is a part of another, or another of it."""
        slots = _WORD.findall(form)
        lent = self._rng.choice(slots) if word else ""
        words = {slot: word if slot == lent else self._word(kind) for slot in slots}
        letter, noun = self._rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), self._rng.choice(WORKS)
        name = form.format(**words, i=letter, n=self._number(), t=noun)
        if any(name.lower() in known or known in name.lower() for known in self._given):
            return ""
        self._given.add(name.lower())
        self._made[name] = form, list(words.values())
        return name
