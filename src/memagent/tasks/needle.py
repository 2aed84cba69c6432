"""The needle family: facts hidden in a haystack, with the structure and parameters of RULER (arXiv 2404.06654, table 1).

Eight tasks under the published names. They differ from RULER in the text of the haystack (any text, by default a book with
its line ends) and its sentence boundaries, in the word list, and in the wording unless a RULER checkout is given. A
distractor is never about a key of the question. The last line of a haystack may be cut to fit the length.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias

from memagent.errors import TaskError
from memagent.tasks.fitting import Planned, fit
from memagent.tasks.haystack import Haystack
from memagent.tasks.keys import KeyKind, distinct, distinct_keys, distinct_values, make_key, make_value, relative
from memagent.tasks.lazy_text import LazyText
from memagent.tasks.lines import generated_haystack, noise_haystack
from memagent.tasks.samples import Sample, checked, generator
from memagent.tasks.task import Materials, Request, Task
from memagent.tasks.wording import NOUNS, STATEMENTS, ValueKind, Wording, ask, state

Hay: TypeAlias = Literal["noise", "essay", "needle"]

# RULER puts facts into an essay at 40 different depths, equally spaced and rounded to per cents.
_DEPTHS = tuple(round(100 * step / 39) / 100 for step in range(40))


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedleOptions:
    """What to hide and what to ask for. RULER's parameter is named in brackets.

    haystack        the text that hides the facts [type_haystack]: noise (stock sentences, repeated), essay (the given
                    text), or needle (facts about other keys, which may repeat by chance, as in RULER)
    key             the kind of keys [type_needle_k]: pair ("amber-falcon"), phrase, name, noun, coined, number, uuid
    value           the kind of values [type_needle_v]: number (7 digits), word, uuid
    keys            the number of keys with facts [num_needle_k]; at least `queries`
    values          the number of values of each key, each in a separate sentence [num_needle_v]
    queries         the number of keys in the question [num_needle_q]
    hard_negatives  every second key that the question does not ask for shares one of its two words with a key that it asks
                    for; a UUID shares some of its groups, and so does its value
    wordings        one: RULER's form of statement and question; many: any form the embedded model was trained on
    """

    renamed: ClassVar[Mapping[str, str]] = {"rivals": "hard_negatives"}

    haystack: Hay = "essay"
    key: KeyKind = "pair"
    value: ValueKind = "number"
    keys: int = 1
    values: int = 1
    queries: int = 1
    hard_negatives: bool = False
    wordings: Literal["one", "many"] = "one"

    def __post_init__(self) -> None:
        if not (self.queries >= 1 and self.keys >= 1 and self.values >= 1):
            raise TaskError(
                f"a needle task needs a key, a value and a query, not {self.keys}, {self.values}, {self.queries}"
            )


def make_needle(
    name: str, materials: Materials, request: Request, options: NeedleOptions, *, depth: float | None = None
) -> Sample:
    """The requested sample of task `name`. Its facts are at random depths, or all at `depth`."""
    if options.keys * options.values > request.tokens:  # before words are drawn, which takes long for so many
        raise TaskError(f"cannot make a document of {request.tokens} tokens with {options.keys * options.values} facts")
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
        document = LazyText([str(document)])  # no other sample uses this haystack
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
    """Depths as in RULER: in an essay, different ones of 40; elsewhere any."""
    if haystack == "essay" and count <= len(_DEPTHS):
        return rng.sample(_DEPTHS, count)
    return [rng.random() for _ in range(count)]


def _keys(rng: random.Random, materials: Materials, options: NeedleOptions) -> tuple[list[str], list[str]]:
    """The keys that the question asks for, and the distractors."""
    words = materials.words
    asked = distinct_keys(rng, options.queries, options.key, words)
    draw, count = partial(make_key, rng, options.key, words), options.keys - options.queries
    if not options.hard_negatives:
        return asked, distinct(count, draw, asked)
    others: list[str] = []
    while len(others) < count:
        hard = len(others) % 2 == 1
        others += distinct(1, partial(relative, rng, asked[0], words) if hard else draw, [*asked, *others])
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
    """The haystack, and the offset where the document begins in it. `needed` are the asked facts as (key, value)."""
    if options.haystack == "essay":
        return materials.text, materials.text.start(rng)
    if options.haystack == "noise":
        return noise_haystack(materials.wording.noise), 0
    asked, words = [key for key, _ in needed], materials.words
    hard = False

    def line() -> str:
        nonlocal hard
        key, value = rng.choice(needed) if hard else ("", "")
        draw = partial(relative, rng, key, words) if hard else partial(make_key, rng, options.key, words)
        (other,) = distinct(1, draw, asked)
        told = relative(rng, value, words) if hard and options.value == "uuid" else make_value(rng, options.value, words)
        hard = options.hard_negatives and not hard
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
