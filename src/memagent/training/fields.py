"""What the fields of configurations are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from memagent.scoring import SCORERS
from memagent.suite_scoring import OWN


class Part(BaseModel):
    """A table of a configuration. Unknown fields and numbers that are not finite are errors, and nothing changes once it is
    read.

    `renamed` maps former names of fields to the present ones; a former name is an error that says the present one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    renamed: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _name_the_new_field(cls, values: Any) -> Any:
        for old, new in cls.renamed.items():
            if isinstance(values, Mapping) and old in values:
                raise ValueError(f"`{old}` is now named `{new}`")
        return values


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


Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]  # as torch takes it
Beta = Annotated[float, Field(ge=0.0, lt=1.0)]
Range = Annotated[tuple[Count, Count], AfterValidator(_ordered)]  # inclusive
Some = Annotated[tuple[Positive, Positive], AfterValidator(_ordered)]  # the same, of at least one
# Readers of whose turns the right replies are known (memagent.training.reader_turns).
TrainedReader: TypeAlias = Literal["memory", "gated", "parallel"]
Scorer = Annotated[str, AfterValidator(_scorer)]
# A number, or piecewise linear over the progress of a run: [[progress, weight], …].
Weight = Annotated[
    list[tuple[Share, Annotated[float, Field(ge=0)]]],
    Field(min_length=1),
    BeforeValidator(_points),
    AfterValidator(_rising),
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
