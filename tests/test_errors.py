"""Errors: each of them survives the way from one process to another."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from memagent.errors import MemagentError, MissingExtraError
from memagent.evaluation.report import training
from memagent.models import openai_compatible
from memagent.models.replies import GarbledReplyError, TransientError
from memagent.server.jobs import RefusedError

ARGUMENTS: dict[type, tuple[Any, ...]] = {  # of those with an `__init__` of their own
    MissingExtraError: ("a report", "eval"),
    TransientError: ("busy", 2.5, 503),
    GarbledReplyError: ("no JSON", None, 200),
    openai_compatible._NoServerError: ("refused", 1.0, None),
    RefusedError: ("full", 30),
}
assert issubclass(training.NoMetricsError, MemagentError)  # its module is imported, so that it is among them


def classes(root: type[MemagentError] = MemagentError) -> Iterator[type[MemagentError]]:
    yield root
    for cls in root.__subclasses__():
        yield from classes(cls)


@pytest.mark.parametrize(
    "cls", [pytest.param(cls, id=cls.__name__) for cls in classes() if cls.__module__.startswith("memagent.")]
)
def test_every_error_can_be_pickled_and_copied(cls) -> None:
    error = cls(*ARGUMENTS.get(cls, ("what is wrong",)))
    error.add_note("and where")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is cls
        assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
        assert getattr(again, "msg", None) == getattr(error, "msg", None)  # of an ImportError
