"""Sentences that state a fact, and questions that ask for one. The embedded model was trained on exactly these families.

In statements {key} and {value} stand once each; {noun} is what the value is called. The structure of the tasks is the RULER
benchmark's (arXiv 2404.06654), the words are ours.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

ValueKind: TypeAlias = Literal["number", "word", "uuid"]


@dataclass(frozen=True, slots=True)
class Noun:
    """The noun for a value, in the singular and the plural."""

    one: str
    many: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The wording of RULER's tasks: ours, or that of a RULER checkout.

    needle             states a needle: {kind} ("number") or {kinds} ("numbers"), {key}, {value}
    ask_one, ask_many  ask for one value or several: {kind} ("number"), {kinds}, {keys}
    last               what stands before the last of several keys
    noise              what a noise haystack repeats, line by line
    tracking           asks for the variables that hold {value}
    common             asks for the {count} most common words of a numbered list
    frequent           asks for the three most frequent coded words
    answering          asks the {question} of a question file
    heading            stands above document {number} of several
    """

    name: str
    needle: str
    ask_one: str
    ask_many: str
    last: str
    noise: str
    tracking: str
    common: str
    frequent: str
    answering: str
    heading: str

    def state(self, kind: ValueKind, key: str, value: str) -> str:
        """The sentence that hides `value`."""
        return self.needle.format(kind=kind, kinds=kind + "s", key=key, value=value)

    def ask(self, kind: ValueKind, keys: Sequence[str], values: int) -> str:
        """The question for all values, `values` in number, of all `keys`."""
        form = self.ask_one if values == 1 else self.ask_many
        return form.format(kind=kind, kinds=kind + "s", keys=listed(keys, self.last))


OURS = Wording(
    name="memagent",
    needle="A secret {kind} for {key} is {value}.",
    ask_one="What is the secret {kind} for {keys}?",
    ask_many="What are all the secret {kinds} for {keys}?",
    last=" and ",
    noise="The door is open. The lamp is lit. The bread is warm. Off they went. And home by nightfall.",
    tracking="The text gives values to variables, some by way of other variables. Which variables have the value {value}?",
    common="The text is a numbered list of words. Which {count} words does it list most often?",
    frequent="The text is made of coded words and dots. Leave out the dots: which three words are the most frequent?",
    answering="{question}",
    heading="Document {number}:",
)

NOUNS: dict[ValueKind, tuple[Noun, ...]] = {
    "number": (
        Noun("secret number", "secret numbers"),
        Noun("number", "numbers"),
        Noun("code", "codes"),
        Noun("access code", "access codes"),
        Noun("combination", "combinations"),
        Noun("serial number", "serial numbers"),
        Noun("account number", "account numbers"),
        Noun("telephone number", "telephone numbers"),
    ),
    "word": (
        Noun("password", "passwords"),
        Noun("code word", "code words"),
        Noun("secret word", "secret words"),
        Noun("watchword", "watchwords"),
        Noun("code name", "code names"),
    ),
    "uuid": (
        Noun("secret uuid", "secret uuids"),
        Noun("identifier", "identifiers"),
    ),
}

STATEMENTS: tuple[str, ...] = (
    "A {noun} for {key} is {value}.",
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
    "What is the {noun} for {key} in the text?",
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
    "What are all the {nouns} for {keys}?",
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
    return rng.choice(QUESTIONS_MANY).format(noun=noun.one, nouns=noun.many, keys=listed(keys))


def listed(names: Sequence[str], last: str = " and ") -> str:
    """Names in a sentence: "a", "a and b", "a, b and c"."""
    return last.join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
