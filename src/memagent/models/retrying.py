"""Whether to retry a request, and how long to wait."""

from __future__ import annotations

import email.utils
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

# Neither backoff nor a server's Retry-After makes a turn wait longer than this before the next attempt.
MAX_WAIT = 60.0
_RETRIED = frozenset({408, 409, 425, 429})
_NEVER = frozenset({501, 505})  # "not implemented" stays so


def is_transient(status: int) -> bool:
    """Whether to retry after an HTTP status: the server was busy, restarting or overloaded."""
    return status in _RETRIED or (status >= 500 and status not in _NEVER)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds that a Retry-After header asks for (a number or an HTTP date); None without a usable one."""
    value = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - (time.time() if now is None else now))


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential waits: `base` seconds doubled with each attempt, cut at `limit`, up to a quarter taken off at random.

    The random part keeps many turns that failed together from returning together; it decides when a request is sent, never
    what it says.
    """

    base: float = 0.5
    limit: float = 30.0
    random: random.Random = field(default_factory=random.Random)

    def wait(self, attempt: int, asked: float | None = None) -> float:
        """Seconds before the attempt after `attempt` (1 = the first). The server's request applies, up to MAX_WAIT."""
        if asked is not None:
            return min(asked, MAX_WAIT)
        longest = min(self.base * 2.0 ** min(attempt - 1, 30), self.limit)
        return longest * (1 - 0.25 * self.random.random())
