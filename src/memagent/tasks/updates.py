"""Facts that change: later statements replace the values of keys, and the last statement counts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from memagent.errors import TaskError
from memagent.tasks.fitting import Planned, fit
from memagent.tasks.keys import KeyKind, distinct_keys, distinct_values
from memagent.tasks.samples import Sample, checked, generator
from memagent.tasks.task import Materials, Request, Task
from memagent.tasks.tracking import interleave
from memagent.tasks.wording import NOUNS, Noun, ValueKind, state

# The first value, and those that take its place. {noun} is what the value is called.
_FIRST = (
    "The {noun} for {key} is {value}.",
    "The {noun} of {key} is {value}.",
    "The {noun} assigned to {key} is {value}.",
)
_LATER = (
    "The {noun} for {key} has been changed to {value}.",
    "The {noun} for {key} is now {value}.",
    "The {noun} of {key} was changed again, and is {value} from now on.",
    "From that day on, the {noun} for {key} was {value}.",
    "They gave {key} the new {noun} {value}.",
)
QUESTION = "What is the {noun} for {key} now, after all changes?"
STATEMENTS = (*_FIRST, *_LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatesOptions:
    """The changing facts.

    values  number of consecutive values of each key
    keys    number of keys; the question is about one
    key     the kind of keys: pair ("amber-falcon"), phrase, name, noun, coined, number, uuid
    value   the kind of values: number (7 digits), word, uuid
    """

    values: int = 4
    keys: int = 2
    key: KeyKind = "pair"
    value: ValueKind = "number"

    def __post_init__(self) -> None:
        if self.values < 1 or self.keys < 1:
            raise TaskError(f"update tracking needs at least 1 value and 1 key, not {self.values} and {self.keys}")


def make_updates(name: str, materials: Materials, request: Request, options: UpdatesOptions) -> Sample:
    """Several statements about each of a few keys. The answer is the last value of one key."""
    rng = generator(request.seed, name, request.index)
    keys = distinct_keys(rng, options.keys, options.key, materials.words)
    values = distinct_values(rng, options.keys * options.values, options.value, materials.words)
    noun = rng.choice(NOUNS[options.value])
    histories = [
        _history(rng, noun, key, values[number * options.values : (number + 1) * options.values], asked=number == 0)
        for number, key in enumerate(keys)
    ]
    facts = interleave(rng, histories)
    depths = sorted(rng.random() for _ in facts)
    start = materials.text.start(rng)
    document, planted, have = fit(materials.text, materials.tokenizer, facts, depths, tokens=request.tokens, start=start)
    return checked(
        Sample(
            id=f"{name}-{request.tokens}-{request.seed}-{request.index}",
            task=name,
            question=QUESTION.format(noun=noun.one, key=keys[0]),
            document=document,
            answers=(values[options.values - 1],),
            facts=tuple(planted),
            tokens=have,
            seed=request.seed,
            meta={"values": options.values, "keys": options.keys},
        )
    )


def _history(rng: random.Random, noun: Noun, key: str, values: Sequence[str], *, asked: bool) -> list[Planned]:
    """The statements about one key, in order. The answer needs the last statement about the key of the question."""
    return [
        Planned(
            text=state(rng.choice(_LATER if number else _FIRST), noun, key, value),
            key=key,
            value=value,
            needed=asked and number == len(values) - 1,
        )
        for number, value in enumerate(values)
    ]


TASKS: tuple[Task[UpdatesOptions], ...] = (
    Task(
        name="updates",
        summary="the last of several values of a key",
        make=partial(make_updates, "updates"),
        defaults=UpdatesOptions(),
    ),
)
