"""Requests to one server.

By aiohttp, because the openai SDK takes several times its time for a request (docs/decisions/0004).
"""

from __future__ import annotations

import json
import os
import re
import ssl
import weakref
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import truststore

from memagent.models.background import BackgroundLoop
from memagent.models.endpoint import Endpoint

T = TypeVar("T")

# Clients and servers (uvicorn: 5 s) both drop idle connections; dropping them first avoids writing into a closing one.
_IDLE_SECONDS = 2.0
_CONNECT_SECONDS = 10.0


class UnreachableError(Exception):
    """No connection at all: refused, unknown host, no route, a certificate that is not trusted."""


class DroppedError(Exception):
    """The connection ended before the reply did, or what came over it was not HTTP."""


class Line:
    """Connections to an endpoint, at most so many at a time, and the event loop in a thread of its own that they belong to.

    Both begin with the first request, and end with `close` or, where that was forgotten, with the `owner`.
    """

    def __init__(
        self, owner: object, endpoint: Endpoint, *, name: str, connections: int, connect_seconds: float = _CONNECT_SECONDS
    ) -> None:
        self._endpoint = endpoint
        self._connections = connections
        self._connect_seconds = connect_seconds
        self._loop = BackgroundLoop(name)
        self._open: aiohttp.ClientSession | None = None
        self._process = os.getpid()
        weakref.finalize(owner, self.close)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs `work`, which makes requests, on the loop. Raises ModelError after `close`."""
        return self._loop.submit(work)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` on the loop and waits for it."""
        return self._loop.run(work)

    def close(self) -> None:
        """Cancels what runs, and closes connections and thread. Repeated calls are allowed."""
        self._forget_other_process()
        self._loop.close(self._farewell())

    async def request(self, url: str, body: Mapping[str, Any] | None = None) -> tuple[int, Mapping[str, str], str]:
        """Status, headers and text of a GET, or of a POST of `body` as JSON. To be awaited on the loop.

        Raises UnreachableError and DroppedError. It waits for ever: the caller sets the time.
        """
        sent = None if body is None else _json(body)
        method, headers = ("GET", None) if sent is None else ("POST", {"Content-Type": "application/json"})
        try:
            async with self._session.request(
                method, url, data=sent, headers=headers, params=self._endpoint.query or None, proxy=self._endpoint.proxy
            ) as reply:
                return reply.status, reply.headers, (await reply.read()).decode(errors="replace")
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise UnreachableError(str(error)) from None
        except (aiohttp.InvalidURL, ValueError) as error:  # a host that is none, a proxy that is none
            raise UnreachableError(type(error).__name__) from None
        except aiohttp.ClientResponseError as error:  # whose text has the whole URL
            raise DroppedError(f"{type(error).__name__}: {error.message}") from None
        except aiohttp.ServerDisconnectedError:  # whose text may have the headers that came
            raise DroppedError("the server closed it before its reply was whole") from None
        except (aiohttp.ClientError, OSError) as error:
            raise DroppedError(f"{type(error).__name__}: {error}") from None

    @property
    def _session(self) -> aiohttp.ClientSession:
        self._forget_other_process()
        if self._open is None:
            trusted = _trusted() if self._endpoint.base_url.startswith("https:") else True
            self._open = aiohttp.ClientSession(
                headers={"User-Agent": "memagent", **self._endpoint.headers},
                connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=_IDLE_SECONDS, ssl=trusted),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_seconds),
            )
        return self._open

    async def _farewell(self) -> None:
        if self._open is not None:
            await self._open.close()

    def _forget_other_process(self) -> None:
        """After a fork: the connections are the other process's. To close them here would end its waiting for replies,
        since both have one epoll. aiohttp closes what is collected, and has no public way to let go of it."""
        if self._process != os.getpid():
            if self._open is not None and self._open.connector is not None:
                self._open.connector._closed = True
            self._process, self._open = os.getpid(), None


def _json(body: Mapping[str, Any]) -> bytes:
    """JSON in UTF-8. Half of a surrogate pair, which models write, becomes a question mark: UTF-8 has none."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _trusted() -> ssl.SSLContext:
    """Checks certificates by SSL_CERT_FILE and SSL_CERT_DIR, by those that OpenSSL finds, or by the system's store."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile or (paths.capath and any(_HASHED.fullmatch(one.name) for one in Path(paths.capath).iterdir())):
        return ssl.create_default_context()
    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")  # how OpenSSL wants a certificate to be named in a folder
