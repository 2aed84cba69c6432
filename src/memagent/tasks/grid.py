"""One needle at each of several fixed depths, for the map of accuracy over depth and length."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from memagent.errors import TaskError
from memagent.tasks.needle import NeedleOptions, make_needle
from memagent.tasks.samples import Sample
from memagent.tasks.task import Materials, Request, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class GridOptions:
    """The position of the fact.

    depths    number of depths, equally spaced from the start (0) to the end (1): sample `index` has number index % depths
    haystack  noise, essay or needle, as for the needle tasks
    """

    depths: int = 11
    haystack: Literal["noise", "essay", "needle"] = "essay"

    def __post_init__(self) -> None:
        if self.depths < 2:
            raise TaskError(f"a grid needs at least 2 depths, not {self.depths}")


def make_grid(name: str, materials: Materials, request: Request, options: GridOptions) -> Sample:
    """A needle document; `meta` has the intended depth."""
    depth = (request.index % options.depths) / (options.depths - 1)
    return make_needle(name, materials, request, NeedleOptions(haystack=options.haystack), depth=depth)


TASKS: tuple[Task[GridOptions], ...] = (
    Task(
        name="grid",
        summary="one number at each of eleven depths in turn",
        make=partial(make_grid, "grid"),
        defaults=GridOptions(),
    ),
)
