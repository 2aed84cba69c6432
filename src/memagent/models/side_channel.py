"""Requests other than chat completions: what a server says of itself, and its counts of tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

from memagent.errors import ModelError
from memagent.models.concurrency import Gate
from memagent.models.endpoint import Endpoint
from memagent.models.transport import DroppedError, Line, UnreachableError

_CONNECTIONS = 8


class SideChannel:
    """Requests to a server's other routes. A failure gives None, because this information is optional.

    It has connections of its own, so that nothing here waits for a memory to be written. Any thread may use it.
    """

    def __init__(self, endpoint: Endpoint, *, timeout: float = 5.0) -> None:
        self.endpoint = endpoint
        self._timeout = timeout
        self.unreachable: str | None = None  # why there was no connection the last time
        self._gate = Gate(_CONNECTIONS)
        connect = min(timeout, 2.0)
        self._line = Line(self, endpoint, name="memagent-side-channel", connections=_CONNECTIONS, connect_seconds=connect)

    def ask(self, url: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON answer of a GET (or of a POST of `body`), or None."""
        text = self._request(url, body)
        with suppress(ValueError, RecursionError):
            return None if text is None else json.loads(text)
        return None

    def text(self, url: str) -> str | None:
        """The text that a GET answers, or None."""
        return self._request(url, None)

    def _request(self, url: str, body: Mapping[str, Any] | None) -> str | None:
        text = unreachable = None
        try:
            text = self._line.run(self._reply(url, body))
        except UnreachableError as error:
            unreachable = str(error)
        except (TimeoutError, DroppedError, ModelError, CancelledError):
            pass
        self.unreachable = unreachable
        return text

    async def _reply(self, url: str, body: Mapping[str, Any] | None) -> str | None:
        async with self._gate.through(), asyncio.timeout(self._timeout):  # the wait for a connection is not the server's
            status, _, text = await self._line.request(url, body)
            return text if status == 200 else None

    def close(self) -> None:
        """Closes the connections. What is asked later has no answer."""
        self._line.close()
