"""Failures of which it is not known yet whether they are of a reading or of the server."""

from __future__ import annotations

from typing import Generic, TypeVar

from memagent.errors import ModelError, ModelRefusedError, ModelUnavailableError

T = TypeVar("T")

# A server that is down, or a key that is wrong, would fail all other readings as well.
DOUBTFUL: tuple[type[ModelError], ...] = (ModelUnavailableError, ModelRefusedError)


class Doubt(Generic[T]):
    """Holds failed readings back until another one has ended well: then they failed for reasons of their own. After
    `patience` of them in a row the error of the last is raised, and none of them counts: they go on when the command is
    repeated. Not for several threads at a time."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._held: list[T] = []

    def hold(self, failed: T, error: ModelError) -> None:
        """Holds one back. Raises `error` if there are too many."""
        self._held.append(failed)
        if len(self._held) > self._patience:
            raise error

    def settled(self) -> list[T]:
        """Those that were held back, which now count, because a reading has ended well, or all are over."""
        held, self._held = self._held, []
        return held
