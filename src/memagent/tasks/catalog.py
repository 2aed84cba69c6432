"""Every task by its name."""

from __future__ import annotations

from typing import Any

from memagent.errors import TaskError
from memagent.tasks import counting, facts, grid, multihop, needle, qa, real, scattered, tracking, updates
from memagent.tasks.task import Task

_FAMILIES = (needle, tracking, counting, qa, multihop, facts, scattered, grid, updates, real)
CATALOG: dict[str, Task[Any]] = {task.name: task for family in _FAMILIES for task in family.TASKS}


def find(name: str) -> Task[Any]:
    """The task of this name. Raises TaskError that lists the known names."""
    if name not in CATALOG:
        raise TaskError(f"no task named {name!r}; known: {', '.join(CATALOG)}")
    return CATALOG[name]
