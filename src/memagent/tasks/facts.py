"""Questions as people ask them, about made-up people, towns, firms, books, contracts and ships. They need no files.

A document states some attributes of some subjects, each in one of ten sentences, and the question asks for one of them, in
one of ten wordings. Training has seven of the sentences and seven of the wordings, evaluation the other three.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal, TypeAlias, cast

from pydantic import Field

from memagent.errors import TaskError
from memagent.tasks.fact_values import SORTS, Sort, make
from memagent.tasks.fitting import Planned, fit
from memagent.tasks.names import Kind, Names
from memagent.tasks.samples import Sample, checked, generator
from memagent.tasks.task import Materials, Request, Task
from memagent.tasks.words import Split, split_of

_HELD_OUT = 3  # of the statements and questions of an attribute, the last ones: they are never trained on
ABSENT = ("not in the document", "not yet")  # as the wordings of prompts have it that come with the package
Wordings: TypeAlias = Literal["split", "train", "eval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """What a text can say of a subject {a} of the kind `source`: a value {b}, a name or something else."""

    name: str
    source: Kind
    target: Kind | Sort
    statements: tuple[str, ...]
    questions: tuple[str, ...]

    def of(self, subject: str) -> str:
        """What a memory calls it: "Mara Tolle, birthday"."""
        return f"{subject}, {self.name}"

    def state(self, rng: random.Random, split: Split, a: str, b: str) -> str:
        """A sentence that says so."""
        sentence = rng.choice(_of(self.statements, split)).format(a=a, b=b)
        return sentence[0].upper() + sentence[1:]

    def ask(self, rng: random.Random, split: Split, a: str) -> str:
        """A question for the value."""
        return rng.choice(_of(self.questions, split)).format(a=a)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsOptions:
    """What a document says beside the answer, and in which words.

    attribute   the attribute that is asked for; "any": one of them, at random
    others      the number of other subjects of which it says the same; every second one has a name like the one asked for
    attributes  the number of other attributes of the subject that is asked for, as far as there are more
    absent      the document says everything but the answer, which is then that it does not hold it
    names       what names are made of: coined words, words of the word list, or any, one of them at random
    wordings    the statements and questions to choose from: train, eval, or split, those of the split of the words
    """

    attribute: str = "any"
    others: Annotated[int, Field(ge=0)] = 3
    attributes: Annotated[int, Field(ge=0)] = 2
    absent: bool = False
    names: Literal["coined", "words", "any"] = "any"
    wordings: Wordings = "split"


@cache
def attributes() -> tuple[Attribute, ...]:
    """All attributes, in the order of the file."""
    table = tomllib.loads(files("memagent.tasks").joinpath("data", "facts.toml").read_text("utf-8"))
    return tuple(
        Attribute(**one | {"statements": tuple(one["statements"]), "questions": tuple(one["questions"])})
        for one in table["attribute"]
    )


def make_facts(materials: Materials, request: Request, options: FactsOptions) -> Sample:
    """The requested sample: one attribute of one subject, among the same of others and others of the same."""
    rng = generator(request.seed, "facts", request.index)
    words = split_of(materials.words.nouns[0])
    split: Split = words if options.wordings == "split" else options.wordings
    asked = _asked(rng, options.attribute)
    of_words = options.names == "words" or (options.names == "any" and rng.random() < 0.5)
    names = Names(rng, words, materials.words.nouns if of_words else ())
    subject = names.new(asked.source)
    value = _value(rng, asked, names, words)
    facts = [Planned(text=asked.state(rng, split, subject, value), key=asked.of(subject), value=value)]
    if options.absent:
        facts.clear()
    facts += _distractors(rng, options, asked, subject, names, words, split)
    document, planted, tokens = fit(
        materials.haystack,
        materials.tokenizer,
        facts,
        [rng.random() for _ in facts],
        tokens=request.tokens,
        start=materials.haystack.start(rng),
    )
    sample = Sample(
        id=f"facts-{request.tokens}-{request.seed}-{request.index}",
        task="facts",
        question=asked.ask(rng, split, subject),
        document=document,
        answers=ABSENT if options.absent else (value,),
        facts=tuple(planted),
        tokens=tokens,
        seed=request.seed,
        meta={
            "subject": subject,
            "attribute": asked.name,
            "wordings": split,
            "others": options.others,
            "attributes": options.attributes,
        },
        scorer="abstention" if options.absent else "",
    )
    return checked(sample)


def _distractors(
    rng: random.Random,
    options: FactsOptions,
    asked: Attribute,
    subject: str,
    names: Names,
    words: Split,
    split: Split,
) -> Iterator[Planned]:
    for number in range(options.others):
        other = names.new(asked.source, subject if number % 2 else "")
        value = _value(rng, asked, names, words)
        yield Planned(text=asked.state(rng, split, other, value), key=asked.of(other), value=value, needed=False)
    more = [one for one in attributes() if one.source == asked.source and one is not asked]
    for one in rng.sample(more, min(options.attributes, len(more))):
        value = _value(rng, one, names, words)
        text = one.state(rng, split, subject, value)
        yield Planned(text=text, key=one.of(subject), value=value, needed=False)


def _asked(rng: random.Random, name: str) -> Attribute:
    if name == "any":
        return rng.choice(attributes())
    for one in attributes():
        if one.name == name:
            return one
    known = ", ".join(one.name for one in attributes())
    raise TaskError(f"no attribute is named {name!r}; known: any, {known}")


def _value(rng: random.Random, attribute: Attribute, names: Names, split: Split) -> str:
    if attribute.target in SORTS:
        return make(rng, cast(Sort, attribute.target), split)
    return names.new(cast(Kind, attribute.target))


def _of(texts: Sequence[str], split: Split) -> Sequence[str]:
    return texts[-_HELD_OUT:] if split == "eval" else texts[:-_HELD_OUT]


TASKS: tuple[Task[FactsOptions], ...] = (
    Task(
        name="facts",
        summary="one fact about a made-up person, town, firm, book, contract or ship, asked for in natural words",
        make=make_facts,
        defaults=FactsOptions(),
    ),
)
