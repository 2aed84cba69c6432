"""Single turns, drawn one by one: a question about some keys, a memory, a chunk with facts. `ideal` knows the right reply.

Unlike the turns of whole readings they can be as dense as one likes: many facts in a short chunk, many of them asked.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from memagent.tasks.haystack import Haystack, sentence_borders
from memagent.tasks.keys import KeyKind, coined, distinct_keys, is_new, make_value, relative
from memagent.tasks.samples import Fact
from memagent.tasks.updates import QUESTION as CHANGED
from memagent.tasks.updates import STATEMENTS as CHANGES
from memagent.tasks.wording import NOUNS, STATEMENTS, Noun, ValueKind, ask, state
from memagent.tasks.words import Words
from memagent.training.fields import FewRange, Part, Share, SomeRange, TokenRange, TrainedReader
from memagent.training.ideal import Line, Notes, Slots

# Sentences that name the value before the key are the hardest: they are shown three times as often.
_STATEMENTS = (*STATEMENTS, *[text for text in STATEMENTS if text.index("{value}") < text.index("{key}")] * 2)
Statement: TypeAlias = tuple[str, str, str]  # sentence, key, value


class Recipe(Part):
    """How to draw one exercise. Ranges are inclusive; shares are probabilities."""

    renamed: ClassVar[Mapping[str, str]] = {"near": "partial_matches"}

    tokens: TokenRange
    """The length of the whole row, about, in tokens."""
    asked: SomeRange = (1, 8)
    """The number of keys in the question."""
    stated: Share = 0.4
    """The share of asked keys that the chunk states; a quarter of it for keys that have a value in the memory, apart from
    exercises of `changes`."""
    quiet: Share = 0.1
    """The share of chunks that state no asked key."""
    fresh: Share = 0.1
    """The share of exercises with the first, empty memory."""
    kept: Share = 0.4
    """The share of asked keys that have a value in the memory, where it is not the first one."""
    distractors: FewRange = (0, 3)
    """The number of facts about other keys in the chunk."""
    related: Share = 0.3
    """The share of distractors whose key resembles an asked key."""
    partial_matches: Share = 0.0
    """The share of chunks whose book text holds one word of an asked key, where the book has that word."""
    changes: Share = 0.0
    """The share of exercises in the words of the task `updates`: about one key, whose values change."""
    forgotten: Share = 0.0
    """The share of the memory's values that the reply leaves out, where the chunk does not state them anew."""
    outdated: Share = 0.0
    """The share of the memory's values that the reply holds on to, where the chunk states another."""
    answer: Share = 0.0
    """The share of exercises that ask for the answer and show no chunk."""
    echo: Share = 0.0
    """The share of rows that are random tokens to be repeated: copying, and nothing else."""
    reader: TrainedReader = "memory"
    """The reader whose turn it is; a turn of `parallel` is one of a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """What a prompt holds beside the chunk. `first`: the memory is the profile's empty memory."""

    question: str
    notes: Notes
    first: bool


@dataclass(frozen=True, slots=True)
class Careless(Slots):
    """Notes of a reader that knows the form of a memory, and not what to do with what it holds: of these keys the value is
    forgotten where a chunk does not state it anew, of those it stays where a chunk states another. Both have a value."""

    forgotten: frozenset[str] = frozenset()
    outdated: frozenset[str] = frozenset()

    def after(self, facts: Sequence[Fact]) -> Careless:
        old, stated = dict(self.lines), {fact.key for fact in facts}
        values = dict(Slots.after(self, facts).lines)
        for key, held in old.items():
            if key in self.outdated:
                values[key] = held
            if key in self.forgotten and key not in stated:
                values[key] = ()
        return replace(self, lines=tuple(values.items()))


def draw_keys(rng: random.Random, count: int, words: Words) -> list[str]:
    """Keys of one kind: pairs mostly, which is what most tests of this family ask for."""
    kinds: tuple[KeyKind, ...] = ("pair", "phrase", "name", "noun", "coined")
    return distinct_keys(rng, count, rng.choices(kinds, weights=(60, 10, 8, 7, 15))[0], words)


def draw_value(rng: random.Random, kind: ValueKind, words: Words) -> str:
    """Numbers of seven digits mostly, also of 1 to 10; nouns mostly, also coined words."""
    if kind == "word":
        return coined(rng) if rng.random() < 0.2 else make_value(rng, kind, words)
    return make_value(rng, kind, words, 7 if rng.random() < 0.7 else rng.randint(2, 10))


def draw_noun(rng: random.Random, kind: ValueKind, words: Words) -> Noun:
    """What a value is called: one of the usual nouns, or any noun, so that the name of a thing does not matter."""
    if rng.random() < 0.75:
        return rng.choice(NOUNS[kind])
    word = rng.choice(words.nouns)
    return Noun(word, word + "s")


def draw_exercise(rng: random.Random, recipe: Recipe, words: Words) -> tuple[Exercise, list[Statement]]:
    """An exercise and the facts to plant, as (sentence, key, value), in document order."""
    kind: ValueKind = "number" if rng.random() < 0.75 else "word"
    noun = draw_noun(rng, kind, words)
    changes = recipe.changes and rng.random() < recipe.changes  # a share of 0 draws nothing
    statements = CHANGES if changes else _STATEMENTS
    keys = draw_keys(rng, 1 if changes else rng.randint(*recipe.asked), words)
    first = rng.random() < recipe.fresh
    memory = {key: draw_value(rng, kind, words) for key in keys if not first and rng.random() < recipe.kept}
    stated: list[str] = []
    if rng.random() >= recipe.quiet:
        seldom = 1 if changes else 4  # how much seldomer a key is stated of which a value is known
        stated = [key for key in keys if rng.random() < recipe.stated / (seldom if key in memory else 1)]
    others: list[str] = []
    for _ in range(rng.randint(*recipe.distractors)):
        key = relative(rng, rng.choice(keys), words) if rng.random() < recipe.related else draw_keys(rng, 1, words)[0]
        if is_new(key, [*keys, *others]):
            others.append(key)
    about = [*stated, *others]
    rng.shuffle(about)
    same = rng.choice(statements) if rng.random() < 0.5 else None
    facts = []
    for key in about:
        value = draw_value(rng, kind, words)
        called = noun if rng.random() < 0.9 else draw_noun(rng, kind, words)
        facts.append((state(same or rng.choice(statements), called, key, value), key, value))
    question = CHANGED.format(noun=noun.one, key=keys[0]) if changes else ask(rng, noun, keys)
    notes = _notes(rng, recipe, tuple((key, (memory[key],) if key in memory else ()) for key in keys))
    return Exercise(question=question, notes=notes, first=first), facts


def _notes(rng: random.Random, recipe: Recipe, lines: tuple[Line, ...]) -> Slots:
    """The notes of an exercise, with what its reply is to get wrong. Shares of 0 draw nothing."""
    if not recipe.forgotten and not recipe.outdated:
        return Slots(lines)
    held = [key for key, values in lines if values]
    forgotten, outdated = (
        frozenset(key for key in held if rng.random() < share) for share in (recipe.forgotten, recipe.outdated)
    )
    return Careless(lines, forgotten=forgotten, outdated=outdated)


def rewrap(rng: random.Random, text: str) -> str:
    """The text with other line ends, as books come in all widths: wrapped, unwrapped, or as it is."""
    choice = rng.random()
    if choice < 0.5:
        return text
    flat = re.sub(r"(?<!\n) ?\n(?!\n)", " ", text)
    if choice < 0.65:
        return flat
    width = rng.randint(50, 90)
    lines, column = [], 0
    for word in flat.split(" "):
        if column + len(word) > width:
            lines.append("\n")
            column = 0
        elif lines:
            lines.append(" ")
        lines.append(word)
        column = len(word) - word.rfind("\n") - 1 if "\n" in word else column + len(word) + 1
    return "".join(lines)


def partial_match(rng: random.Random, recipe: Recipe, keys: Sequence[str]) -> str:
    """A word of one of the keys that the chunk's text is to hold, or ""."""
    wanted = recipe.partial_matches and rng.random() < recipe.partial_matches  # a share of 0 draws nothing
    return rng.choice(re.split("[- ]", rng.choice(keys))) if wanted else ""


def plant_all(
    rng: random.Random, haystack: Haystack, facts: Sequence[Statement], chars: int, word: str = ""
) -> tuple[str, list[Fact]]:
    """A text of about `chars` characters with the facts inserted at random sentence borders, and where they are. `word`: to
    stand in the text, if the haystack has it."""
    body = chars - sum(len(sentence) + 1 for sentence, _, _ in facts)
    text = rewrap(rng, haystack.window(rng, body, word)) if body > 40 else ""
    borders = sentence_borders(text)
    places = sorted(rng.choice(borders) for _ in facts)
    pieces, planted, size, done = [], [], 0, 0
    for place, (sentence, key, value) in zip(places, facts, strict=True):
        gap = text[done:place]
        if gap and not gap[-1].isspace():
            gap += " "
        pieces += [gap, sentence, " "]
        start = size + len(gap)
        size = start + len(sentence) + 1
        planted.append(Fact(text=sentence, start=start, end=start + len(sentence), key=key, value=value))
        done = place
    pieces.append(text[done:])
    return "".join(pieces), planted
