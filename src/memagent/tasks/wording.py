"""Sentences that state a fact, and questions that ask for one. The embedded model was trained on exactly these families.

In statements {key} and {value} stand once each; {noun} is what the value is called. The first statement and the first
question have the structure that the RULER benchmark published (arXiv 2404.06654).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

ValueKind: TypeAlias = Literal["number", "word"]


@dataclass(frozen=True, slots=True)
class Noun:
    """What a value is called, in the singular and the plural."""

    one: str
    many: str


NOUNS: dict[ValueKind, tuple[Noun, ...]] = {
    "number": (
        Noun("special magic number", "special magic numbers"),
        Noun("number", "numbers"),
        Noun("code", "codes"),
        Noun("access code", "access codes"),
        Noun("combination", "combinations"),
        Noun("serial number", "serial numbers"),
        Noun("account number", "account numbers"),
        Noun("telephone number", "telephone numbers"),
    ),
    "word": (
        Noun("special magic word", "special magic words"),
        Noun("password", "passwords"),
        Noun("code word", "code words"),
        Noun("secret word", "secret words"),
        Noun("watchword", "watchwords"),
        Noun("code name", "code names"),
    ),
}

STATEMENTS: tuple[str, ...] = (
    "One of the {nouns} for {key} is: {value}.",
    "The {noun} for {key} is: {value}.",
    "The {noun} for {key} is {value}.",
    "The {noun} of {key} is {value}.",
    "Remember that the {noun} for {key} is {value}.",
    "Note that the {noun} of {key} was {value}.",
    "For {key}, the {noun} is {value}.",
    "It was agreed that {key} should have the {noun} {value}.",
    "They gave {key} the {noun} {value}.",
    "The {noun} that belongs to {key} is {value}, as everybody knew.",
    "The {noun} {value} belongs to {key}.",
    "Somebody had written down {value} as the {noun} for {key}.",
    "Everybody knew that {key}'s {noun} was {value}.",
    "According to the ledger, the {noun} of {key} is {value}.",
    "The {noun} assigned to {key} is {value}.",
    "The {noun} for {key} has been changed to {value}.",
    "To reach {key}, use the {noun} {value}.",
    "Entry for {key}: {value}.",
    "On the back of the paper it said that {key} had the {noun} {value}, and nothing else.",
)

QUESTIONS_ONE: tuple[str, ...] = (
    "What is the {noun} for {key} mentioned in the provided text?",
    "What is the {noun} for {key}?",
    "What is the {noun} of {key}?",
    "Which {noun} belongs to {key}?",
    "Find the {noun} of {key}.",
    "Tell me the {noun} for {key}.",
    "What is {key}'s {noun}?",
    "What was the {noun} for {key}?",
    "Please give me the {noun} of {key}.",
    "Can you find the {noun} for {key} in the text?",
    "According to the text, what is the {noun} of {key}?",
    "What {noun} does {key} have?",
    "What does the text say about {key}?",
)

QUESTIONS_MANY: tuple[str, ...] = (
    "What are the {nouns} for {keys} mentioned in the provided text?",
    "What are the {nouns} for {keys}?",
    "What are the {nouns} of {keys}?",
    "Which {nouns} belong to {keys}?",
    "Find the {nouns} of {keys}.",
    "Tell me the {nouns} for {keys}.",
    "What were the {nouns} for {keys}?",
    "Please give me the {nouns} of {keys}.",
    "Can you find the {nouns} for {keys} in the text?",
    "According to the text, what are the {nouns} of {keys}?",
    "What {nouns} do {keys} have?",
    "What does the text say about {keys}?",
)


def state(template: str, noun: Noun, key: str, value: str) -> str:
    """The sentence that states the fact."""
    return template.format(noun=noun.one, nouns=noun.many, key=key, value=value)


def ask(rng: random.Random, noun: Noun, keys: Sequence[str]) -> str:
    """A question for the values of all `keys`, named in that order."""
    if len(keys) == 1:
        return rng.choice(QUESTIONS_ONE).format(noun=noun.one, nouns=noun.many, key=keys[0])
    listed = ", ".join(keys[:-1]) + " and " + keys[-1]
    return rng.choice(QUESTIONS_MANY).format(noun=noun.one, nouns=noun.many, keys=listed)
