"""Synthetic questions of one to four hops over made-up people, places and works. They need no files.

The names are made up and belong to one side of the split of words, so that a model has met none of them: without the
document the answer cannot be known. Every thing has at most one successor in each relation, so that the answer is unique.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from memagent.tasks.fitting import Planned, fit
from memagent.tasks.names import Names
from memagent.tasks.relations import RELATIONS, Link, Relation, ask, path
from memagent.tasks.samples import Sample, checked, generator
from memagent.tasks.task import Materials, Request, Task
from memagent.tasks.words import split_of


@dataclass(frozen=True, slots=True)
class MultihopOptions:
    """hops: the number of steps from the question to the answer, 1 to 4; each step is a separate sentence.
    order: the order of these sentences in the document. "document": in the order of the steps; "reversed": the last step
    first, so that each sentence comes before its relevance is known; "shuffled": any order.
    distractors: the number of chains of equal length that do not lead to the answer. Half of them leave the path by another
    relation. The others use the same relations and, if names have parts, similar names.
    """

    hops: Annotated[int, Field(ge=1, le=4)] = 2
    order: Literal["document", "reversed", "shuffled"] = "document"
    distractors: Annotated[int, Field(ge=0)] = 4


def multihop(materials: Materials, request: Request, options: MultihopOptions) -> Sample:
    """A chain of facts and distractor chains, scattered over the haystack."""
    rng = generator(request.seed, "multihop", request.index)
    world = _World(rng, Names(rng, split_of(materials.words.nouns[0])))
    relations = path(rng, options.hops)
    chain = world.chain(relations)
    question = ask(rng, chain[0].a, relations)
    others = [link for number in range(options.distractors) for link in world.distractor(chain, branch=number % 2 == 0)]
    facts = [_planned(rng, link, needed=True) for link in chain]
    if options.order == "shuffled":
        rng.shuffle(facts)
    elif options.order == "reversed":
        facts.reverse()
    depths = sorted(rng.random() for _ in facts)
    facts += [_planned(rng, link, needed=False) for link in others]
    depths += [rng.random() for _ in others]
    document, planted, tokens = fit(
        materials.text,
        materials.tokenizer,
        facts,
        depths,
        tokens=request.tokens,
        start=materials.text.start(rng),
    )
    sample = Sample(
        id=f"multihop-{request.tokens}-{request.seed}-{request.index}",
        task="multihop",
        question=question,
        document=document,
        answers=(chain[-1].b,),
        facts=tuple(planted),
        tokens=tokens,
        seed=request.seed,
        meta={
            "hops": options.hops,
            "order": options.order,
            "distractors": options.distractors,
            "chain": [chain[0].a, *(link.b for link in chain)],
        },
    )
    return checked(sample)


class _World:
    """The names and relations in use."""

    def __init__(self, rng: random.Random, names: Names) -> None:
        self._rng = rng
        self._names = names
        self._taken: set[tuple[str, Relation]] = set()

    def chain(self, relations: list[Relation], start: str = "", like: list[Link] | None = None) -> list[Link]:
        """New links along the relations, from `start` or a new name, to new names similar to those of `like`."""
        likes = [like[0].a, *(link.b for link in like)] if like else [""] * (len(relations) + 1)
        names = [start or self._names.new(relations[0].source, likes[0])]
        links = []
        for relation, similar in zip(relations, likes[1:], strict=True):
            names.append(self._names.new(relation.target, similar))
            links.append(Link(relation, names[-2], names[-1]))
            self._taken.add((names[-2], relation))
        return links

    def distractor(self, chain: list[Link], *, branch: bool) -> list[Link]:
        """A distractor chain of equal length, parallel to a chain or leaving it."""
        relations = [link.relation for link in chain]
        if branch:
            leaving = self._rng.choice(chain)
            free = [
                one for one in RELATIONS if one.source == leaving.relation.source and (leaving.a, one) not in self._taken
            ]
            if free:
                return self.chain(path(self._rng, len(chain), free), start=leaving.a)
        return self.chain(relations, like=chain)


def _planned(rng: random.Random, link: Link, *, needed: bool) -> Planned:
    return Planned(text=link.state(rng), key=link.key, value=link.b, needed=needed)


TASKS: tuple[Task[MultihopOptions], ...] = (
    Task(
        name="multihop",
        summary="chains of 1 to 4 facts about made-up people, places and works, among chains that lead elsewhere",
        make=multihop,
        defaults=MultihopOptions(),
    ),
)
