"""What the fields of configurations are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from memagent.scoring import SCORERS


class Part(BaseModel):
    """A table of a configuration: unknown fields are errors, and nothing changes once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _scorer(value: str) -> str:
    if value not in SCORERS:
        raise ValueError(f"no scorer {value!r}; known: {', '.join(SCORERS)}")
    return value


Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Range: TypeAlias = tuple[Count, Count]  # inclusive
Scorer = Annotated[str, AfterValidator(_scorer)]
# Piecewise linear over the progress of a run: [[progress, weight], …].
Weight = Annotated[list[tuple[Share, Annotated[float, Field(ge=0)]]], Field(min_length=1)]


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
