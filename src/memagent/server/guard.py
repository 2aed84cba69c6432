"""What every request goes through before a route: limits, headers, counters. Plain ASGI, so that streams stay streams."""

from __future__ import annotations

import logging
import time

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memagent import tracing
from memagent.server import log
from memagent.server.metrics import Metrics
from memagent.server.origin import comes_from, name_of
from memagent.server.problems import answer

_LOG = logging.getLogger("memagent.server")
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_HEADERS = (
    (b"content-security-policy", b"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
     b" img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)  # fmt: skip


class Guard:
    """Wraps an application.

    Bodies beyond `limit` bytes are refused as they come in. Without keys (`local`), only requests to this machine by its
    own names are taken, and none that a page of another site sends: such a page could have its visitors' files read.
    """

    def __init__(self, app: ASGIApp, *, limit: int, local: bool, metrics: Metrics) -> None:
        self._app, self._limit, self._local, self._metrics = app, limit, local, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, code = time.monotonic(), 500
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}

        async def counted(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(item for item in _HEADERS if item[0] not in given)]
            await send(message)

        with log.line_of_request() as noted:
            try:
                if (refused := self._refusal(headers)) is not None:
                    await refused(scope, receive, counted)
                else:
                    with tracing.incoming(headers):
                        await self._app(scope, _bounded(receive, self._limit), counted)
            finally:
                route, took = getattr(scope.get("route"), "path", "other"), time.monotonic() - began
                self._metrics.requested(route, code, took)
                client = (scope.get("client") or (None,))[0]
                asked = {"method": scope["method"], "route": route, "code": code, "client": client, **noted}
                log.told(_LOG, "request", **asked, seconds=round(took, 4))

    def _refusal(self, headers: dict[str, str]) -> Response | None:
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._limit:
            return answer(413, f"the body has {int(length):,} bytes, the limit is {self._limit:,}")
        if not self._local:
            return None
        if name_of(headers.get("host", "")) not in LOOPBACK:
            only = "without keys, this service is for this machine only: use 127.0.0.1 or localhost as its name"
            return answer(403, only)
        origin = headers.get("origin")
        if origin and not comes_from(origin, headers.get("host", "")):
            return answer(403, "requests that a page of another site sends are not taken")
        return None


def _bounded(receive: Receive, limit: int) -> Receive:
    got = 0

    async def bounded() -> Message:
        nonlocal got
        message = await receive()
        got += len(message.get("body", b""))
        if got > limit:
            raise HTTPException(413, f"the body is longer than {limit:,} bytes, the limit")
        return message

    return bounded
