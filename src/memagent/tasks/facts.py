"""Questions as people ask them, about made-up people, towns, firms, books, contracts and ships. They need no files.

A document states some attributes of some subjects, each in one of some two hundred sentences, and the question asks for
one of them or for several, each in one of as many wordings. The last ten of each are for evaluation alone.
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
from memagent.tasks.name_forms import FormedNames
from memagent.tasks.names import Kind, Names
from memagent.tasks.samples import Sample, checked, generator
from memagent.tasks.task import Materials, Request, Task
from memagent.tasks.words import Split, split_of

HELD_OUT = 10  # of the statements and questions of an attribute, the last ones: they are never trained on
ABSENT = ("not in the document", "not yet")  # as the wordings of prompts have it that come with the package
Wordings: TypeAlias = Literal["split", "train", "eval"]
Order: TypeAlias = Literal["any", "value"]


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

    def state(self, rng: random.Random, split: Split, a: str, b: str, order: Order = "any") -> str:
        """A sentence that says so."""
        known = _of(self.statements, split)
        first = [one for one in known if order == "value" and one.index("{b}") < one.index("{a}")]
        sentence = rng.choice(first or known).format(a=a, b=b)
        return sentence[0].upper() + sentence[1:]

    def ask(self, rng: random.Random, split: Split, a: str) -> str:
        """A question for the value."""
        return rng.choice(_of(self.questions, split)).format(a=a)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsOptions:
    """What is asked for, what a document says beside the answer, and in which words.

    attribute   the attribute that is asked for; "any": one of them, at random
    asked       the number of facts that the question asks for, of one subject or of several, one sentence each
    others      the number of other subjects of which it says the same; every second one has a name like the one asked for
    attributes  the number of other attributes of the subjects that are asked for, as far as there are more
    absent      the document says everything but the answer, which is then that it does not hold it
    names       what names are made of: coined words, words of the word list, or any, one of them at random
    forms       what names look like: plain ("Tolle Mills"), many ("Tolle & Sons", "Bank of Tolle"), or any, as above
    wordings    the statements, questions and forms to choose from: train, eval, or split, those of the split of the words
    order       any: all statements; value: those that name the value before the subject, where there is one
    """

    attribute: str = "any"
    asked: Annotated[int, Field(ge=1, le=32)] = 1
    others: Annotated[int, Field(ge=0)] = 3
    attributes: Annotated[int, Field(ge=0)] = 2
    absent: bool = False
    names: Literal["coined", "words", "any"] = "any"
    forms: Literal["plain", "many", "any"] = "plain"
    wordings: Wordings = "split"
    order: Order = "any"


Asked: TypeAlias = tuple[str, Attribute]  # a subject, and what is asked of it


@cache
def attributes() -> tuple[Attribute, ...]:
    """All attributes, in the order of the file."""
    table = tomllib.loads(files("memagent.tasks").joinpath("data", "facts.toml").read_text("utf-8"))
    return tuple(
        Attribute(**one | {"statements": tuple(one["statements"]), "questions": tuple(one["questions"])})
        for one in table["attribute"]
    )


def make_facts(materials: Materials, request: Request, options: FactsOptions) -> Sample:
    """The requested sample: some attributes of some subjects, among the same of others and others of the same."""
    if options.absent and options.asked > 1:
        raise TaskError(f"absent = true is for one question, not for asked = {options.asked}; leave one of them out")
    rng = generator(request.seed, "facts", request.index)
    words = split_of(materials.words.nouns[0])
    split: Split = words if options.wordings == "split" else options.wordings
    attribute = _attribute(rng, options.attribute)
    of_words = options.names == "words" or (options.names == "any" and rng.random() < 0.5)
    made_of = materials.words.nouns if of_words else ()
    many = options.forms == "many" or (options.forms == "any" and rng.random() < 0.5)
    names = FormedNames(rng, words, made_of, split) if many else Names(rng, words, made_of)
    document = _Document(rng, split, names, words, options.order)
    asked = [(document.names.new(attribute.source), attribute)]
    facts = [document.fact(*asked[0])]
    while len(asked) < options.asked:
        asked.append(document.another(asked, options.attribute))
        facts.append(document.fact(*asked[-1]))
    answers = tuple(fact.value for fact in facts)
    if options.absent:
        answers, facts = ABSENT, []
    facts += document.distractors(asked, options)
    text, planted, tokens = fit(
        materials.text,
        materials.tokenizer,
        facts,
        [rng.random() for _ in facts],
        tokens=request.tokens,
        start=materials.text.start(rng),
    )
    sample = Sample(
        id=f"facts-{request.tokens}-{request.seed}-{request.index}",
        task="facts",
        question=" ".join(one.ask(rng, split, subject) for subject, one in asked),
        document=text,
        answers=answers,
        facts=tuple(planted),
        tokens=tokens,
        seed=request.seed,
        meta={
            "keys": [one.of(subject) for subject, one in asked],
            "wordings": split,
            "others": options.others,
            "attributes": options.attributes,
        },
        mode="all" if options.asked > 1 else "any",
        scorer="abstention" if options.absent else "",
    )
    return checked(sample)


@dataclass(frozen=True, slots=True)
class _Document:
    """What is drawn for one document: its sentences are of `split`, its values and names of `words`."""

    rng: random.Random
    split: Split
    names: Names
    words: Split
    order: Order

    def fact(self, subject: str, attribute: Attribute, needed: bool = True) -> Planned:
        value = self._value(attribute)
        text = attribute.state(self.rng, self.split, subject, value, self.order)
        return Planned(text=text, key=attribute.of(subject), value=value, needed=needed)

    def another(self, asked: Sequence[Asked], name: str) -> Asked:
        """One more to ask for: something else of a subject that is asked for already, or something of a new one."""
        if name == "any" and self.rng.random() < 0.5:
            subject, known = self.rng.choice(asked)
            if more := _further(asked, subject, known.source):
                return subject, self.rng.choice(more)
        attribute = _attribute(self.rng, name)
        return self.names.new(attribute.source), attribute

    def distractors(self, asked: Sequence[Asked], options: FactsOptions) -> Iterator[Planned]:
        for number in range(options.others):
            subject, attribute = asked[number // 2 % len(asked)]
            yield self.fact(self.names.new(attribute.source, subject if number % 2 else ""), attribute, needed=False)
        subjects = {subject: attribute.source for subject, attribute in asked}
        more = [(subject, one) for subject, kind in subjects.items() for one in _further(asked, subject, kind)]
        for subject, one in self.rng.sample(more, min(options.attributes, len(more))):
            yield self.fact(subject, one, needed=False)

    def _value(self, attribute: Attribute) -> str:
        if attribute.target in SORTS:
            return make(self.rng, cast(Sort, attribute.target), self.words)
        return self.names.new(cast(Kind, attribute.target))


def _further(asked: Sequence[Asked], subject: str, kind: Kind) -> list[Attribute]:
    """What else a text can say of a subject of this kind."""
    return [one for one in attributes() if one.source == kind and (subject, one) not in asked]


def _attribute(rng: random.Random, name: str) -> Attribute:
    if name == "any":
        return rng.choice(attributes())
    for one in attributes():
        if one.name == name:
            return one
    known = ", ".join(one.name for one in attributes())
    raise TaskError(f"no attribute is named {name!r}; known: any, {known}")


def _of(texts: Sequence[str], split: Split) -> Sequence[str]:
    return texts[-HELD_OUT:] if split == "eval" else texts[:-HELD_OUT]


TASKS: tuple[Task[FactsOptions], ...] = (
    Task(
        name="facts",
        summary="facts about made-up people, towns, firms, books, contracts and ships, asked for in natural words",
        make=make_facts,
        defaults=FactsOptions(),
    ),
)
