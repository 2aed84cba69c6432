"""What the model that ships can be asked, in words and wordings that it was not trained on: a fact of each kind, chains."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

import memagent
from memagent.models.open import OpenModel, open_model, open_tokenizer
from memagent.suite_scoring import own_score
from memagent.tasks.catalog import find
from memagent.tasks.facts import attributes
from memagent.tasks.samples import Sample
from memagent.tasks.synthesis import Recipe, gather
from memagent.tasks.task import Materials, Request


@pytest.fixture(scope="module")
def model() -> Iterator[OpenModel]:
    opened = open_model("embedded")
    yield opened
    opened.engine.close()


@pytest.fixture(scope="module")
def materials() -> Materials:
    return gather(Recipe(tasks=("facts",), tokens=(900,), samples=1, tokenizer=partial(open_tokenizer, "embedded")))


def made(materials: Materials, task: str, index: int, tokens: int, **options: object) -> Sample:
    found = find(task)
    return found.sample(materials, Request(tokens=tokens, seed=11, index=index), found.options(options))


def right(model: OpenModel, sample: Sample) -> bool:
    reading = memagent.read(memagent.from_text(str(sample.document)), sample.question, model=model)
    return own_score(sample.scorer or "strict", reading.answer or "", sample.answers, sample.mode, sample.meta) == 1


@pytest.mark.parametrize("absent", [False, True])
def test_a_fact_of_each_kind(model: OpenModel, materials: Materials, absent: bool) -> None:
    names = [one.name for one in attributes()]
    asked = list(enumerate(2 * names))
    samples = [made(materials, "facts", n, 900, attribute=name, absent=absent) for n, name in asked]
    found = [right(model, sample) for sample in samples]
    assert sum(found) >= 2 * (len(names) - 4)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_chains_of_facts(model: OpenModel, materials: Materials, hops: int) -> None:
    found = [right(model, made(materials, "multihop", index, 6000, hops=hops)) for index in range(10)]
    assert sum(found) >= 7
