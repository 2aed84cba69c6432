"""Scattered retrieval: everything that belongs to one owner, said in many places and many ways all over a long text.

A memory must grow with every find and lose nothing: one sentence of many is in any one chunk. Others own things too.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial

from memagent.errors import TaskError
from memagent.tasks.fitting import Planned, fit
from memagent.tasks.keys import distinct_keys
from memagent.tasks.names import Names
from memagent.tasks.samples import Sample, checked, generator
from memagent.tasks.task import Materials, Request, Task
from memagent.tasks.words import split_of

_STATEMENTS = (
    "The {thing} belongs to {owner}.",
    "{owner} owns the {thing}.",
    "Everybody knew that the {thing} was the property of {owner}.",
    "The {thing}, which is {owner}'s, was left where it stood.",
    "{owner} is the owner of the {thing}.",
    "Among the things that {owner} owns is the {thing}.",
    "Nobody but {owner} could call the {thing} their own.",
    "It was {owner} who had bought the {thing}, and who kept it.",
    "The {thing} bears the mark of its owner, {owner}.",
    "The list says of the {thing}: owner, {owner}.",
)
_QUESTION = "Which things belong to {owner}? Name all of them."


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatteredOptions:
    """The hidden things.

    count   number of things to find, usually 10 to 50, spread evenly over the document
    others  number of things that belong to other owners
    owners  number of these other owners
    """

    count: int = 20
    others: int = 20
    owners: int = 4

    def __post_init__(self) -> None:
        if not (1 <= self.count <= 500 and 0 <= self.others <= 500 and self.owners >= 1):
            raise TaskError(
                f"count must be 1 to 500, others 0 to 500, owners 1 or more, not {self.count}, {self.others}, {self.owners}"
            )


def make_scattered(name: str, materials: Materials, request: Request, options: ScatteredOptions) -> Sample:
    """Sentences about owners and their things. The answer is all things of one owner."""
    rng = generator(request.seed, name, request.index)
    names = Names(rng, split_of(materials.words.nouns[0]))
    owner, *rest = [names.new("person") for _ in range(1 + options.owners)]
    things = distinct_keys(rng, options.count + options.others, "phrase", materials.words)
    owners = [owner] * options.count + [rest[number % len(rest)] for number in range(options.others)]
    facts = [
        Planned(text=_sentence(rng, who, thing), key=who, value=thing, needed=who == owner)
        for who, thing in zip(owners, things, strict=True)
    ]
    depths = spread(rng, options.count) + spread(rng, options.others)
    start = materials.text.start(rng)
    document, planted, have = fit(materials.text, materials.tokenizer, facts, depths, tokens=request.tokens, start=start)
    return checked(
        Sample(
            id=f"{name}-{request.tokens}-{request.seed}-{request.index}",
            task=name,
            question=_QUESTION.format(owner=owner),
            document=document,
            answers=tuple(things[: options.count]),
            mode="all",
            facts=tuple(planted),
            tokens=have,
            seed=request.seed,
            meta={"count": options.count, "others": options.others, "owners": options.owners},
        )
    )


def spread(rng: random.Random, count: int) -> list[float]:
    """Random depths, one in each of `count` equal parts of the document, in random order."""
    depths = [(part + rng.random()) / count for part in range(count)]
    rng.shuffle(depths)
    return depths


def _sentence(rng: random.Random, owner: str, thing: str) -> str:
    text = rng.choice(_STATEMENTS).format(owner=owner, thing=thing)
    return text[:1].upper() + text[1:]


TASKS: tuple[Task[ScatteredOptions], ...] = (
    Task(
        name="scattered",
        summary="all things of one owner, spread over the whole text",
        make=partial(make_scattered, "scattered"),
        defaults=ScatteredOptions(),
    ),
)
