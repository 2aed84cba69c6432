"""Variable tracking, with the structure and parameters of RULER (arXiv 2404.06654, task vt): chains of assignments, each
from the variable before, scattered over a haystack in the order in which they must be read.

What differs from RULER: values of several chains are always different; the worked example before the document is left out
(a document that is read in pieces has no place for it); and the wording, unless that of a RULER checkout is used.
"""

from __future__ import annotations

import random
import string
from dataclasses import dataclass
from functools import partial
from typing import Literal

from memagent.errors import TaskError
from memagent.tasks.fitting import Planned, fit
from memagent.tasks.keys import distinct
from memagent.tasks.lines import noise_haystack
from memagent.tasks.needle import draw_depths
from memagent.tasks.samples import Sample, checked, generator
from memagent.tasks.task import Materials, Request, Task

_LETTERS = 5  # of a variable's name


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingOptions:
    """The hidden chains. RULER's parameter is named in brackets.

    chains    number of chains; the question is about one [num_chains]
    hops      assignments from another variable in each chain [num_hops]
    haystack  noise (stock sentences, repeated) or essay (the given text) [type_haystack]
    """

    chains: int = 1
    hops: int = 4
    haystack: Literal["noise", "essay"] = "noise"

    def __post_init__(self) -> None:
        if self.chains < 1 or self.hops < 0:
            raise TaskError(f"variable tracking needs at least 1 chain and 0 hops, not {self.chains} and {self.hops}")


def make_tracking(name: str, materials: Materials, request: Request, options: TrackingOptions) -> Sample:
    """Chains of assignments. The answer is all variables of the first chain."""
    rng = generator(request.seed, name, request.index)
    size = options.hops + 1
    names = distinct(options.chains * size, lambda: "".join(rng.choices(string.ascii_uppercase, k=_LETTERS)))
    values = distinct(options.chains, lambda: str(rng.randrange(10_000, 100_000)))
    end = "." if options.haystack == "essay" else ""
    chains = [
        _chain(value, names[number * size : (number + 1) * size], end, needed=number == 0)
        for number, value in enumerate(values)
    ]
    facts = interleave(rng, chains)
    depths = sorted(draw_depths(rng, len(facts), options.haystack))
    essay = options.haystack == "essay"
    haystack = materials.text if essay else noise_haystack(materials.wording.noise)
    start = haystack.start(rng) if essay else 0
    document, planted, have = fit(haystack, materials.tokenizer, facts, depths, tokens=request.tokens, start=start)
    return checked(
        Sample(
            id=f"{name}-{request.tokens}-{request.seed}-{request.index}",
            task=name,
            question=materials.wording.tracking.format(value=values[0]),
            document=document,
            answers=tuple(names[:size]),
            mode="all",
            facts=tuple(planted),
            tokens=have,
            seed=request.seed,
            meta={"chains": options.chains, "hops": options.hops, "haystack": options.haystack},
        )
    )


def interleave(rng: random.Random, chains: list[list[Planned]]) -> list[Planned]:
    """The facts of all chains in random order; the facts of one chain stay in order."""
    turns = [number for number, chain in enumerate(chains) for _ in chain]
    rng.shuffle(turns)
    rest = [iter(chain) for chain in chains]
    return [next(rest[number]) for number in turns]


def _chain(value: str, names: list[str], end: str, needed: bool) -> list[Planned]:
    """The assignments in order. A memory must contain the variable's name of each."""
    sources = [value, *names]
    texts = [f"VAR {name} = {'VAR ' if place else ''}{sources[place]}{end}" for place, name in enumerate(names)]
    return [
        Planned(text=text, key=source, value=name, needed=needed)
        for text, source, name in zip(texts, sources, names, strict=False)
    ]


TASKS: tuple[Task[TrackingOptions], ...] = (
    Task(
        name="vt",
        summary="all variables that a chain of assignments gives one value",
        make=partial(make_tracking, "vt"),
        defaults=TrackingOptions(),
    ),
)
