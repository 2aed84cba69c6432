"""Requests to one server: a pool of connections that belongs to an event loop.

By aiohttp, whose parser is compiled: beside a request through it the openai SDK takes several times as long
(docs/decisions/0004).
"""

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import Mapping
from typing import Any

import aiohttp

from memagent.models.endpoint import Endpoint

# Clients and servers (uvicorn: 5 s) both drop idle connections; dropping them first avoids writing into a closing one.
_IDLE_SECONDS = 2.0
_CONNECT_SECONDS = 10.0


class UnreachableError(Exception):
    """No connection at all: refused, unknown host, no route, a certificate that is not trusted."""


class DroppedError(Exception):
    """The connection ended before the reply did, or what came over it was not HTTP."""


class Transport:
    """Connections to an endpoint, at most so many at a time. Create, use and close it on one event loop."""

    def __init__(self, endpoint: Endpoint, *, connections: int, connect_seconds: float = _CONNECT_SECONDS) -> None:
        self._proxy = endpoint.proxy
        self._query = endpoint.query or None
        self._session = aiohttp.ClientSession(
            headers={"User-Agent": "memagent", **endpoint.headers},
            connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=_IDLE_SECONDS, ssl=_trusted()),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds),
        )

    async def request(self, url: str, body: Mapping[str, Any] | None = None) -> tuple[int, Mapping[str, str], str]:
        """Status, headers and text of a GET, or of a POST of `body` as JSON.

        Raises UnreachableError and DroppedError. It waits for ever: the caller sets the time.
        """
        sent = (
            None if body is None else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
        )
        method, headers = ("GET", None) if sent is None else ("POST", {"Content-Type": "application/json"})
        try:
            async with self._session.request(
                method, url, data=sent, headers=headers, params=self._query, proxy=self._proxy
            ) as reply:
                return reply.status, reply.headers, (await reply.read()).decode(errors="replace")
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise UnreachableError(str(error)) from None
        except (aiohttp.ClientError, OSError) as error:
            raise DroppedError(f"{type(error).__name__}: {error}") from None

    async def close(self) -> None:
        """Closes all connections."""
        await self._session.close()


def _json(body: Mapping[str, Any]) -> bytes:
    """JSON in UTF-8. Half of a surrogate pair, which models write, becomes a question mark: UTF-8 has none."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _trusted() -> ssl.SSLContext | bool:
    """Checks certificates by the system's store, or by SSL_CERT_FILE and SSL_CERT_DIR."""
    if sys.platform == "linux":
        return True  # as OpenSSL does by itself
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
