"""What readings need and is away: the model's server, or room on the disk.

While it is away, readings wait instead of failing, and one of them at a time tries again.
"""

from __future__ import annotations

import errno
import math
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass

from memagent.errors import ModelUnavailableError

MODEL, DISK = "the model's server does not answer", "the disk of the service cannot be written"
_PAUSES = (1.0, 2.0, 5.0, 10.0, 20.0)  # seconds before the first, second, … try; from then on the last
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
_UNWRITABLE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_BUSY")


@dataclass(slots=True)
class Outage:
    """Whether something is away, and since when readings may try again. `over` counts the outages that have ended."""

    reason: str | None = None
    over: int = 0
    _tries: int = 0
    _next: float = 0.0

    def begin(self, reason: str) -> None:
        """Something was away: the next try is after a pause."""
        now = time.monotonic()
        if self.reason is None or not now < self._next < math.inf:  # others fail for the same outage
            self._next = now + _PAUSES[min(self._tries, len(_PAUSES) - 1)]
            self._tries += 1
        self.reason = reason

    @property
    def pause(self) -> float | None:
        """Seconds until the next try; None while there is one, or no outage."""
        if self.reason is None or self._next == math.inf:
            return None
        return max(0.01, self._next - time.monotonic())

    def end(self) -> bool:
        """Something was answered; returns whether that ended an outage."""
        if self.reason is None:
            return False
        self.reason, self._tries, self._next = None, 0, 0.0
        self.over += 1
        return True

    def may_try(self) -> bool:
        """Whether a reading may begin. During an outage that is one, which then is the try."""
        if self.reason is None:
            return True
        if time.monotonic() < self._next:
            return False
        self._next = math.inf
        return True

    def untried(self) -> None:
        """The try told nothing, or there was no reading for it: the next may begin."""
        if self._next == math.inf:
            self._next = 0.0


def away(error: BaseException) -> str | None:
    """What is away if this error is the reason for a failure; None for any other error."""
    for cause in _causes(error):
        if isinstance(cause, ModelUnavailableError):
            return MODEL
        if isinstance(cause, OSError) and cause.errno in _FULL:
            return DISK
        if isinstance(cause, sqlite3.Error) and getattr(cause, "sqlite_errorname", "").startswith(_UNWRITABLE):
            return DISK
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
