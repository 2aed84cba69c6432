"""Failures that may be of the server: they count only once it is known that it answers."""

from __future__ import annotations

import pytest

from memagent.doubt import Doubt
from memagent.errors import ModelUnavailableError


def test_failures_count_once_a_reading_has_ended_well_and_too_many_in_a_row_end_the_run() -> None:
    doubt = Doubt[int](patience=2)
    for number in (1, 2):
        doubt.hold(number, ModelUnavailableError(f"away {number}"))
    assert doubt.settled() == [1, 2]
    for number in (3, 4):
        doubt.hold(number, ModelUnavailableError(f"away {number}"))
    with pytest.raises(ModelUnavailableError, match="away 5"):
        doubt.hold(5, ModelUnavailableError("away 5"))
    assert doubt.settled() == [3, 4, 5]
    assert doubt.settled() == []
