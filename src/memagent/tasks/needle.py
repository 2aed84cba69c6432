"""The needle family: facts hidden in book text, after RULER (arXiv 2404.06654), in wording of our own.

    single      one fact, one question
    multikey    one fact is asked for, others are about other keys
    multiquery  several facts are asked for in one question
    multivalue  one key has several values, all are asked for

Documents are fitted to a number of tokens: never above it, at most one per cent below.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from memagent.errors import TaskError
from memagent.scoring import strict
from memagent.tasks.haystack import Haystack, sentence_borders
from memagent.tasks.keys import KeyKind, distinct_keys, is_new, make_value, relative
from memagent.tasks.samples import Count, Fact, Sample, generator
from memagent.tasks.wording import NOUNS, STATEMENTS, Noun, ValueKind, ask, state
from memagent.tasks.words import Split

_CHARS_PER_TOKEN = 4  # a first guess; the fit corrects it


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedleSpec:
    """What to hide and what to ask for.

    `queries` keys are asked for; `keys` are hidden in all, the rest as distractors, half of them resembling an asked one;
    `values` is the number of values of each asked key. `template` fixes the sentence (0 is RULER's structure), None draws.
    """

    name: str = "single"
    keys: int = 1
    queries: int = 1
    values: int = 1
    value_kind: ValueKind = "number"
    key_kind: KeyKind = "pair"
    template: int | None = None
    split: Split = "eval"

    def __post_init__(self) -> None:
        if not 1 <= self.queries <= self.keys or self.values < 1:
            raise TaskError(f"needle task {self.name!r}: {self.queries} queries of {self.keys} keys, {self.values} values")


SPECS: dict[str, NeedleSpec] = {
    "single": NeedleSpec(),
    "single-word": NeedleSpec(name="single-word", value_kind="word"),
    "multikey": NeedleSpec(name="multikey", keys=8),
    "multiquery": NeedleSpec(name="multiquery", keys=4, queries=4),
    "multivalue": NeedleSpec(name="multivalue", values=3),
}


def needle(spec: NeedleSpec, haystack: Haystack, count: Count, *, tokens: int, seed: int, index: int) -> Sample:
    """Sample number `index`: a document of at most `tokens` tokens, as `count` counts them, and a question about it.

    The same arguments give the same sample. Raises TaskError if the facts alone do not fit.
    """
    rng = generator(seed, f"needle/{spec.name}/{tokens}", index)
    noun = rng.choice(NOUNS[spec.value_kind])
    asked, others = _keys(rng, spec)
    planted = [(key, value) for key in asked for value in _values(rng, spec)]
    planted += [(key, make_value(rng, spec.value_kind, spec.split)) for key in others]
    sentences = [(_sentence(rng, spec, noun, key, value), key, value) for key, value in planted]
    question = ask(rng, noun, asked)
    depths = [rng.random() for _ in sentences]
    text = haystack.window(rng, tokens * _CHARS_PER_TOKEN)
    document, facts = fit(text, sentences, depths, count, tokens)
    answers = tuple(value for key, value in planted if key in asked)
    sample = Sample(
        id=f"{spec.name}-{tokens}-{seed}-{index}",
        task=f"needle/{spec.name}",
        question=question,
        document=document,
        answers=answers,
        mode="any" if len(answers) == 1 else "all",
        facts=tuple(facts),
        tokens=count(document),
        seed=seed,
    )
    check(sample)
    return sample


def _keys(rng: random.Random, spec: NeedleSpec) -> tuple[list[str], list[str]]:
    """The keys to ask for and those that only distract."""
    asked = distinct_keys(rng, spec.queries, spec.key_kind, spec.split)
    others: list[str] = []
    while len(others) < spec.keys - spec.queries:
        alike = len(others) % 2 == 1
        key = relative(rng, asked[0], spec.split) if alike else distinct_keys(rng, 1, spec.key_kind, spec.split)[0]
        if is_new(key, asked + others):
            others.append(key)
    return asked, others


def _values(rng: random.Random, spec: NeedleSpec) -> list[str]:
    values: list[str] = []
    while len(values) < spec.values:
        value = make_value(rng, spec.value_kind, spec.split)
        if value not in values:
            values.append(value)
    return values


def _sentence(rng: random.Random, spec: NeedleSpec, noun: Noun, key: str, value: str) -> str:
    template = STATEMENTS[spec.template] if spec.template is not None else rng.choice(STATEMENTS)
    return state(template, noun, key, value)


def plant(text: str, sentences: Sequence[tuple[str, str, str]], depths: Sequence[float]) -> tuple[str, list[Fact]]:
    """Inserts (sentence, key, value) at the sentence borders nearest to the relative depths (0 start, 1 end).

    Returns the new text and the facts in document order, with the exact characters [start, end) of each sentence.
    Raises TaskError if a depth is outside [0, 1] or the two lists differ in length.
    """
    if len(sentences) != len(depths) or not all(0 <= depth <= 1 for depth in depths):
        raise TaskError(f"{len(sentences)} facts need as many depths between 0 and 1, not {list(depths)}")
    borders = sentence_borders(text)
    places = [min(borders, key=lambda border: abs(border - depth * len(text))) for depth in depths]
    pieces: list[str] = []
    facts: list[Fact] = []
    done = size = 0
    for number in sorted(range(len(places)), key=lambda i: (places[i], i)):
        sentence, key, value = sentences[number]
        gap = text[done : places[number]]
        done = places[number]
        if (gap or pieces) and not (gap or pieces[-1])[-1].isspace():
            gap += " "
        pieces += [gap, sentence, " "]
        size += len(gap)
        facts.append(Fact(text=sentence, start=size, end=size + len(sentence), key=key, value=value))
        size += len(sentence) + 1
    return "".join([*pieces, text[done:]]), facts


def fit(
    text: str, sentences: Sequence[tuple[str, str, str]], depths: Sequence[float], count: Count, tokens: int
) -> tuple[str, list[Fact]]:
    """Plants the facts in as much of `text` as makes a document of at most `tokens` tokens, and at least 99 % of them.

    The text is cut at a space. Raises TaskError if the facts alone are too long, or `text` is too short.
    """
    low, high = 0, len(text) + 1  # a document of `low` characters of text is too short, one of `high` too long
    size = min(len(text), int(tokens * _CHARS_PER_TOKEN * 0.6))
    while low < size < high:
        end = size if size == len(text) else max(0, text.rfind(" ", 0, size))
        document, facts = plant(text[:end], sentences, depths)
        have = count(document)
        if tokens * 0.99 <= have <= tokens:
            return document, facts
        low, high = (low, size) if have > tokens else (size, high)
        guess = int(size * 0.995 * tokens / max(1, have))
        size = guess if low < guess < high else (low + min(high, len(text) + 1)) // 2
    raise TaskError(f"{len(sentences)} facts and {len(text)} characters of text cannot be made {tokens} tokens long")


def check(sample: Sample) -> None:
    """A task validates itself: the facts are where they claim, gold scores 1, nothing scores 0. Raises TaskError."""
    for fact in sample.facts:
        if sample.document[fact.start : fact.end] != fact.text or fact.value not in fact.text:
            raise TaskError(f"{sample.id}: a fact is not at characters {fact.start} to {fact.end}")
    if strict(sample.gold, sample.answers, sample.mode) != 1 or strict("", sample.answers, sample.mode) != 0:
        raise TaskError(f"{sample.id}: its own answer {sample.gold!r} does not score 1")
