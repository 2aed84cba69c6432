"""How long the service waits for a client that sends slowly: many that never end a request would use up its connections."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 30.0  # for the head of a request, and for every next part of its body


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose request does not go on. Connections between requests are uvicorn's matter."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # the head is whole
            self._stop()
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        """Begins to wait, or goes on."""
        if self._timer is None:
            self._timer = self.loop.call_later(SECONDS, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.flow.read_paused:  # it is the service that does not take more
            self._wait()
        else:
            self.transport.close()
