"""Relations between made-up people, towns, countries, companies and works, in natural sentences."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from memagent.tasks.names import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A relation from {a}, of the kind `source`, to one {b}, of the kind `target`.

    `phrase` names {b} by {a}; phrases nest. `statements` say so in a sentence; no sentence fits two relations.
    """

    source: Kind
    target: Kind
    phrase: str
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """A relation between two names."""

    relation: Relation
    a: str
    b: str

    @property
    def key(self) -> str:
        """The description of a name: "the author of The Brasond Letters"."""
        return self.relation.phrase.format(a=self.a)

    def state(self, rng: random.Random) -> str:
        """A sentence that states the relation."""
        sentence = rng.choice(self.relation.statements).format(a=self.a, b=self.b)
        return sentence[0].upper() + sentence[1:]


AUTHOR = Relation(
    source="work", target="person", phrase="the author of {a}",
    statements=("{b} wrote {a}.", "{a} was written by {b}.", "The author of {a} is {b}.", "It was {b} who wrote {a}."),
)  # fmt: skip
COUNTRY = Relation(
    source="town", target="country", phrase="the country of {a}",
    statements=("{a} lies in {b}.", "{a} is a town in {b}.", "The town of {a} belongs to {b}."),
)  # fmt: skip
CAPITAL = Relation(
    source="country", target="town", phrase="the capital of {a}",
    statements=("The capital of {a} is {b}.", "{b} is the capital of {a}.", "{a} is governed from its capital, {b}."),
)  # fmt: skip
FIRST_BOOK = Relation(
    source="person", target="work", phrase="the first book of {a}",
    statements=("The first book of {a} was {b}.", "{b} was the first book of {a}.", "{a} began as a writer with {b}."),
)  # fmt: skip
RELATIONS: tuple[Relation, ...] = (
    AUTHOR,
    COUNTRY,
    CAPITAL,
    FIRST_BOOK,
    Relation(
        source="work", target="person", phrase="the illustrator of {a}",
        statements=("{b} drew the pictures for {a}.", "{a} was illustrated by {b}.", "The illustrator of {a} is {b}."),
    ),
    Relation(
        source="work", target="company", phrase="the publisher of {a}",
        statements=("{b} published {a}.", "{a} was published by {b}.", "The publisher of {a} is {b}."),
    ),
    Relation(
        source="person", target="town", phrase="the birthplace of {a}",
        statements=("{a} was born in {b}.", "The birthplace of {a} is {b}.", "{b} is the town where {a} was born."),
    ),
    Relation(
        source="person", target="town", phrase="the place of residence of {a}",
        statements=("{a} lives in {b}.", "{a} has a house in {b} and lives there.", "{b} is the town where {a} lives."),
    ),
    Relation(
        source="person", target="person", phrase="the mother of {a}",
        statements=("{b} is the mother of {a}.", "The mother of {a} is {b}.", "{a} is a child of {b}, the mother of four."),
    ),
    Relation(
        source="person", target="person", phrase="the teacher of {a}",
        statements=("{b} is the teacher of {a}.", "{a} was taught by {b}.", "{b} teaches {a} three times a week."),
    ),
    Relation(
        source="person", target="company", phrase="the employer of {a}",
        statements=("{a} works for {b}.", "{b} employs {a}.", "{a} is employed by {b}."),
    ),
    Relation(
        source="town", target="person", phrase="the mayor of {a}",
        statements=("{b} is the mayor of {a}.", "The mayor of {a} is {b}.", "{a} elected {b} as its mayor."),
    ),
    Relation(
        source="country", target="person", phrase="the president of {a}",
        statements=("{b} is the president of {a}.", "The president of {a} is {b}.", "{a} is led by President {b}."),
    ),
    Relation(
        source="company", target="person", phrase="the founder of {a}",
        statements=("{a} was founded by {b}.", "{b} founded {a}.", "The founder of {a} is {b}."),
    ),
    Relation(
        source="company", target="town", phrase="the home of the head office of {a}",
        statements=(
            "{a} has its head office in {b}.",
            "The head office of {a} is in {b}.",
            "{b} is home to the head office of {a}.",
        ),
    ),
)  # fmt: skip
# A second step that would lead back, were the world a real one.
_BACK = {(CAPITAL, COUNTRY), (FIRST_BOOK, AUTHOR)}


def path(rng: random.Random, steps: int, first: Sequence[Relation] = RELATIONS) -> list[Relation]:
    """Different relations that can follow one another, beginning with one of `first`."""
    while True:
        chosen = [rng.choice(first)]
        while len(chosen) < steps:
            last = chosen[-1]
            fitting = [
                relation
                for relation in RELATIONS
                if relation.source == last.target and relation not in chosen and (last, relation) not in _BACK
            ]
            if not fitting:
                break
            chosen.append(rng.choice(fitting))
        if len(chosen) == steps:
            return chosen


def ask(rng: random.Random, start: str, relations: Sequence[Relation]) -> str:
    """A question that names the last thing on a path by the first one."""
    phrase = start
    for relation in relations:
        phrase = relation.phrase.format(a=phrase)
    lead = "Who is" if relations[-1].target == "person" else "What is"
    return rng.choice((f"{lead} {phrase}?", f"What is the name of {phrase}?", f"{lead} {phrase}, according to the text?"))
