"""The needle family: facts hidden in a haystack, with the structure and parameters of RULER (arXiv 2404.06654, table 1).

Eight tasks under the published names. What differs from RULER: the haystack's text (any, by default a book, with its line
ends) and where its sentences end; the word list; a distractor is never about an asked key; the last line of a haystack
may be cut to fit the length; and the wording, unless that of a RULER checkout is used.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from memagent.errors import TaskError
from memagent.tasks.fitting import Planned, fit
from memagent.tasks.haystack import Haystack
from memagent.tasks.keys import KeyKind, distinct, distinct_keys, distinct_values, make_key, make_value, relative
from memagent.tasks.lines import generated_haystack, noise_haystack
from memagent.tasks.rope import Rope
from memagent.tasks.samples import Sample, checked, generator
from memagent.tasks.task import Materials, Request, Task
from memagent.tasks.wording import NOUNS, STATEMENTS, ValueKind, Wording, ask, state

Hay: TypeAlias = Literal["noise", "essay", "needle"]

# RULER puts facts into an essay at 40 depths, equally spaced and rounded to per cents, without repetition.
_DEPTHS = tuple(round(100 * step / 39) / 100 for step in range(40))


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedleOptions:
    """What to hide and what to ask for. RULER's parameter is named in brackets.

    haystack  what the facts are hidden in [type_haystack]: noise (stock sentences, repeated), essay (the text given), or
              needle (facts about other keys, which come again by chance, as in RULER)
    key       what keys are [type_needle_k]: pair ("amber-falcon"), phrase, name, noun, coined, number, uuid
    value     what values are [type_needle_v]: number (7 digits), word, uuid
    keys      number of keys with facts [num_needle_k]; no fewer than `queries`
    values    number of values of each key, each in a sentence of its own [num_needle_v]
    queries   number of keys in the question [num_needle_q]
    rivals    every second key that is not asked for shares one of its two words with one that is; a UUID shares some of
              its groups, and so does its value
    wordings  one: RULER's form of statement and question; many: any of the forms the embedded model was trained on
    """

    haystack: Hay = "essay"
    key: KeyKind = "pair"
    value: ValueKind = "number"
    keys: int = 1
    values: int = 1
    queries: int = 1
    rivals: bool = False
    wordings: Literal["one", "many"] = "one"

    def __post_init__(self) -> None:
        if not (self.queries >= 1 and self.keys >= 1 and self.values >= 1):
            raise TaskError(
                f"a needle task needs a key, a value and a query, not {self.keys}, {self.values}, {self.queries}"
            )


def make_needle(
    name: str, materials: Materials, request: Request, options: NeedleOptions, *, depth: float | None = None
) -> Sample:
    """The sample of task `name` that was asked for; its facts at random depths, or all at `depth`."""
    rng = generator(request.seed, name, request.index)
    asked, others = _keys(rng, materials, options)
    values = distinct_values(rng, options.values * (len(asked) + len(others)), options.value, materials.words)
    told = list(zip([key for key in (*asked, *others) for _ in range(options.values)], values, strict=True))
    question, sentences = _phrase(rng, materials.wording, options, asked, told)
    facts = [
        Planned(text=sentence, key=key, value=value, needed=key in asked)
        for sentence, (key, value) in zip(sentences, told, strict=True)
    ]
    depths = [depth] * len(facts) if depth is not None else draw_depths(rng, len(facts), options.haystack)
    needed = [(key, value) for key, value in told if key in asked]
    haystack, start = _hay(rng, materials, request, options, needed)
    document, planted, have = fit(haystack, materials.tokenizer, facts, depths, tokens=request.tokens, start=start)
    if options.haystack == "needle":
        document = Rope([str(document)])  # this haystack is no other sample's
    answers = tuple(value for _, value in needed)
    meta: dict[str, Any] = {
        "haystack": options.haystack,
        "keys": len(asked) + len(others),
        "values": options.values,
        "queries": options.queries,
    }
    return checked(
        Sample(
            id=f"{name}-{request.tokens}-{request.seed}-{request.index}",
            task=name,
            question=question,
            document=document,
            answers=answers,
            mode="any" if len(answers) == 1 else "all",
            facts=tuple(planted),
            tokens=have,
            seed=request.seed,
            meta=meta | ({"depth": depths[0]} if len(answers) == 1 else {}),
        )
    )


def draw_depths(rng: random.Random, count: int, haystack: Hay) -> list[float]:
    """RULER's depths: some of 40 in an essay, no two alike; any lines elsewhere."""
    if haystack == "essay" and count <= len(_DEPTHS):
        return rng.sample(_DEPTHS, count)
    return [rng.random() for _ in range(count)]


def _keys(rng: random.Random, materials: Materials, options: NeedleOptions) -> tuple[list[str], list[str]]:
    """The keys to ask for, and those that only distract."""
    words = materials.words
    asked = distinct_keys(rng, options.queries, options.key, words)
    others: list[str] = []
    while len(others) < options.keys - options.queries:
        rival = options.rivals and len(others) % 2 == 1
        draw = partial(relative, rng, asked[0], words) if rival else partial(make_key, rng, options.key, words)
        others += distinct(1, draw, [*asked, *others])
    return asked, others


def _phrase(
    rng: random.Random, wording: Wording, options: NeedleOptions, asked: Sequence[str], told: Sequence[tuple[str, str]]
) -> tuple[str, list[str]]:
    """The question, and a sentence for each (key, value)."""
    if options.wordings == "one":
        question = wording.ask(options.value, asked, options.values * len(asked))
        return question, [wording.state(options.value, key, value) for key, value in told]
    noun = rng.choice(NOUNS[options.value])
    return ask(rng, noun, asked), [state(rng.choice(STATEMENTS), noun, key, value) for key, value in told]


def _hay(
    rng: random.Random,
    materials: Materials,
    request: Request,
    options: NeedleOptions,
    needed: Sequence[tuple[str, str]],
) -> tuple[Haystack, int]:
    """The haystack for facts that are needed, as (key, value), and where to begin in it."""
    if options.haystack == "essay":
        return materials.haystack, materials.haystack.start(rng)
    if options.haystack == "noise":
        return noise_haystack(materials.wording.noise), 0
    asked, words = [key for key, _ in needed], materials.words
    rival = False

    def line() -> str:
        nonlocal rival
        key, value = rng.choice(needed) if rival else ("", "")
        draw = partial(relative, rng, key, words) if rival else partial(make_key, rng, options.key, words)
        (other,) = distinct(1, draw, asked)
        told = relative(rng, value, words) if rival and options.value == "uuid" else make_value(rng, options.value, words)
        rival = options.rivals and not rival
        return materials.wording.state(options.value, other, told)

    return generated_haystack(line, materials.tokenizer, request.tokens), 0


def _task(name: str, summary: str, **options: Any) -> Task[NeedleOptions]:
    return Task(name=name, summary=summary, make=partial(make_needle, name), defaults=NeedleOptions(**options))


TASKS: tuple[Task[NeedleOptions], ...] = (
    _task("niah_single_1", "one number in repeated stock sentences", haystack="noise"),
    _task("niah_single_2", "one number in a long text"),
    _task("niah_single_3", "one UUID in a long text", value="uuid"),
    _task("niah_multikey_1", "one number of four keys in a long text", keys=4),
    _task("niah_multikey_2", "one number among nothing but such facts", haystack="needle"),
    _task("niah_multikey_3", "one UUID among nothing but facts of UUIDs", haystack="needle", key="uuid", value="uuid"),
    _task("niah_multivalue", "four numbers of one key in a long text", values=4),
    _task("niah_multiquery", "the numbers of four keys in a long text", queries=4),
)
