"""The scorers of published evaluation suites. A sample of such a suite names its own.

A suite's scorer is given the answer, the accepted answers (alternatives, of which the best counts) and the sample's `meta`,
which holds what the scorer needs besides. Like those of `memagent.scoring`, every scorer returns a number in [0, 1]: 1 for
a right answer, 0 for an empty one. It raises ValueError if `meta` lacks what it needs, or has it in another type.

Where a suite's published code would give its own reference answer less than 1, the scorer here is more lenient: it also
accepts an answer that is nothing but the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from memagent.scoring import SCORERS, Mode
from memagent.suite_scoring.labels import abstention, babilong, choice, substring, word
from memagent.suite_scoring.numbers import first_number, last_number, leading_numbers
from memagent.suite_scoring.oolong import oolong, oolong_real
from memagent.suite_scoring.overlap import f1_characters, graphwalks, locomo_f1, locomo_parts, mrcr, rouge_l

SuiteScorer: TypeAlias = Callable[[str, Sequence[str], Mapping[str, Any]], float]

SUITE_SCORERS: MappingProxyType[str, SuiteScorer] = MappingProxyType(
    {
        scorer.__name__: scorer
        for scorer in (
            choice, mrcr, graphwalks, babilong, oolong, oolong_real, locomo_f1, locomo_parts, abstention, substring, word,
            first_number, last_number, leading_numbers, f1_characters, rouge_l,
        )
    }
)  # fmt: skip


def known_scorer(name: str) -> str:
    """The name, if a sample may give it as its scorer; an empty one, too. Raises ValueError that names those there are."""
    if name and name not in SCORERS and name not in SUITE_SCORERS:
        raise ValueError(f"no scorer {name!r}; known: {', '.join((*SCORERS, *SUITE_SCORERS))}")
    return name


# The scorer that a sample names, and strict if it names none.
OWN = "own"


def meant(scorer: str, own: str) -> str:
    """The scorer that is meant for a sample that names `own` ("" if none)."""
    return (own or "strict") if scorer == OWN else scorer


def own_score(name: str, answer: str, accepted: Sequence[str], mode: Mode, meta: Mapping[str, Any]) -> float:
    """The score by the scorer that a sample names, of this module or of `memagent.scoring`.

    Raises ValueError for a name that is neither, and for what the scorer raises.
    """
    if known_scorer(name) in SCORERS:
        return SCORERS[name](answer, accepted, mode)
    if not accepted:
        raise ValueError("there are no accepted answers")
    return SUITE_SCORERS[name](answer, accepted, meta)
