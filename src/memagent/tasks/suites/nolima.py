"""NoLiMa (arXiv 2502.05167): needles that share no word with the question. Texts to hide them in are given apart."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from pydantic import Field

from memagent.errors import TaskError
from memagent.tasks.fitting import Planned, fit
from memagent.tasks.haystack import Haystack
from memagent.tasks.samples import generator
from memagent.tasks.suites.suite import Exercise, Hay, Place, Suite, SuiteRecord

_NAME = "{CHAR}"
_APART = 0.2  # between a needle and its distractor, in depth


class Filling(SuiteRecord):
    """What is filled into {1}, {2} … of needle and question."""

    input_args: list[str] = Field(default=[])
    gold_answers: str | list[str] = ""


class NolimaRecord(SuiteRecord):
    """A needle with its questions by kind. {CHAR} is a name of `character_set`, and then the answer."""

    id: str
    needle: str
    questions: dict[str, str] = Field(min_length=1)
    tests: dict[str, Filling] = Field(min_length=1)
    character_set: list[str] = Field(default=[])
    distractors: dict[str, str] = Field(default={})


def exercises(record: NolimaRecord, place: Place) -> Iterator[Exercise]:
    assert place.hay is not None
    for kind in record.questions:
        for name in record.tests:
            for title, haystack in place.hay.texts:
                for number in range(place.hay.depths):
                    id = f"{record.id}_{name}_{kind}-{title}-{number}"
                    yield _exercise(record, kind, name, place.hay, haystack, number, id, place.seed)


def _exercise(
    record: NolimaRecord, kind: str, name: str, hay: Hay, haystack: Haystack, number: int, id: str, seed: int
) -> Exercise:
    rng = generator(seed, f"nolima {id}", 0)
    test, depth = record.tests[name], number / max(1, hay.depths - 1)
    answers = [test.gold_answers] if isinstance(test.gold_answers, str) else list(test.gold_answers)
    person = ""
    if _NAME in record.needle:
        if not record.character_set:
            raise TaskError(f"character_set: expected names for {_NAME} in the needle")
        person = rng.choice(record.character_set)
        answers = [person]
    if not [answer for answer in answers if answer.strip()]:
        raise TaskError(f"tests.{name}.gold_answers: expected an answer, as the needle has no {_NAME}")
    needle = _filled(record.needle, test.input_args, person)
    facts, depths = [Planned(text=needle, value=answers[0] if answers[0] in needle else "")], [depth]
    if other := record.distractors.get(kind):
        facts.append(Planned(text=_filled(other, test.input_args, person), needed=False))
        depths.append(_elsewhere(rng, depth))
    document, planted, tokens = fit(haystack, hay.tokenizer, facts, depths, tokens=hay.tokens, start=haystack.start(rng))
    return Exercise(
        id=id,
        question=_filled(record.questions[kind], test.input_args, person),
        document=document,
        answers=answers,
        scorer="substring",
        category=kind,
        facts=planted,
        tokens=tokens,
        seed=seed,
        meta={"depth": depth, "target": hay.tokens},
    )


def _elsewhere(rng: random.Random, depth: float) -> float:
    """The depth of a distractor, some way from the needle."""
    before, after = max(0.0, depth - _APART), max(0.0, 1 - depth - _APART)
    drawn = rng.uniform(0, before + after)
    return drawn if drawn < before or not after else min(1.0, depth + _APART + drawn - before)


def _filled(text: str, arguments: Sequence[str], person: str) -> str:
    for number, argument in enumerate(arguments, 1):
        text = text.replace(f"{{{number}}}", argument)
    return text.replace(_NAME, person).strip()


SUITE = Suite(
    name="nolima",
    title="NoLiMa",
    file="needlesets/needle_set.json of amodaresi/NoLiMa (Hugging Face), with haystack/rand_shuffle/*.txt as --haystack",
    scorer="substring",
    official="yes; places in the haystack are drawn by us",
    record=NolimaRecord,
    exercises=exercises,
    shares=True,
    needs_hay=True,
)
