"""What the fields of configurations are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from memagent.core.chunking import MIN_CHUNK_TOKENS
from memagent.scoring import SCORERS
from memagent.suite_scoring import OWN


class Part(BaseModel):
    """A table of a configuration. Unknown fields and numbers that are not finite are errors, and nothing changes once it is
    read. The text below a field is its description: the reference of configurations is made of it.

    `renamed` maps former names of fields to the present ones; a former name is an error that says the present one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)
    renamed: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _name_the_new_field(cls, values: Any) -> Any:
        for old, new in cls.renamed.items():
            if isinstance(values, Mapping) and old in values:
                raise ValueError(f"`{old}` is now named `{new}`")
        return values


@dataclass(frozen=True, slots=True)
class Says:
    """Words for the reference, where a type and its bounds do not say it: what a value may be, and what it is."""

    allowed: str = ""
    kind: str = ""


def _scorer(value: str) -> str:
    if value not in (*SCORERS, OWN):
        raise ValueError(f"no scorer {value!r}; known: {', '.join((*SCORERS, OWN))}")
    return value


def _points(value: Any) -> Any:
    return [(0.0, value)] if isinstance(value, int | float) else value


def _rising(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if any(after[0] < before[0] for before, after in pairwise(points)):
        raise ValueError(f"points must be in the order of progress, not {[list(point) for point in points]}")
    return points


def _ordered(bounds: tuple[int, int]) -> tuple[int, int]:
    if bounds[0] > bounds[1]:
        raise ValueError(f"a range is [lowest, highest], not {list(bounds)}")
    return bounds


def either(names: Sequence[str]) -> str:
    """`one`, `two` or `three`."""
    marked = [f"`{name}`" for name in names]
    return " or ".join(part for part in (", ".join(marked[:-1]), marked[-1]) if part)


def one_of(names: Sequence[str]) -> Says:
    """What a validator asks of a name."""
    return Says(either(names))


Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]  # as torch takes it
Beta = Annotated[float, Field(ge=0.0, lt=1.0)]
ChunkTokens = Annotated[int, Field(ge=MIN_CHUNK_TOKENS)]
Few = Annotated[int, Field(ge=0, le=1000)]  # keys and lines in a prompt: thousands are not drawn in time, or at all
# Ranges, lowest and highest included.
_PAIR = (AfterValidator(_ordered), Says(kind="`[lowest, highest]`"))
TokenRange = Annotated[tuple[Positive, Positive], *_PAIR]
ChunkRange = Annotated[tuple[ChunkTokens, ChunkTokens], *_PAIR]
FewRange = Annotated[tuple[Few, Few], *_PAIR]
SomeRange = Annotated[tuple[Annotated[Few, Field(ge=1)], Few], *_PAIR]
# Readers of whose turns the right replies are known (memagent.training.reader_turns).
TrainedReader: TypeAlias = Literal["memory", "gated", "parallel"]
Scorer = Annotated[str, AfterValidator(_scorer), one_of((*SCORERS, OWN))]
# A number, or piecewise linear over the progress of a run: [[progress, weight], …].
Weight = Annotated[
    list[tuple[Share, Annotated[float, Field(ge=0)]]],
    Field(min_length=1),
    BeforeValidator(_points),
    AfterValidator(_rising),
    Says("weights at least 0; progress 0 to 1, rising", "number, or `[[progress, weight], …]`"),
]


def weight_at(points: Sequence[tuple[float, float]], progress: float) -> float:
    """The weight at `progress` in [0, 1], piecewise linear between (progress, weight) points and flat outside them."""
    before = points[0]
    for point in points:
        if point[0] >= progress:
            span = point[0] - before[0]
            share = (progress - before[0]) / span if span > 0 else 1.0
            return before[1] + share * (point[1] - before[1])
        before = point
    return before[1]


def step_without_weight(parts: Sequence[Sequence[tuple[float, float]]], steps: int) -> int | None:
    """A step of a run at which all parts have the weight 0, or None: there would be nothing to draw from.

    Between the points of all parts the sum is linear and never negative: it is 0 at a point, or nowhere beside it.
    """
    points = [point * steps for part in parts for point, _ in part]
    near = {0, *(math.floor(point) + beside for point in points for beside in (0, 1))}
    inside = sorted(step for step in near if 0 <= step < steps)
    return next((step for step in inside if not any(weight_at(part, step / steps) for part in parts)), None)
