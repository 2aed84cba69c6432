"""What went wrong: its status, and the answer in OpenAI's form."""

from __future__ import annotations

import logging

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memagent.errors import ConfigError, DocumentError, JournalError
from memagent.server.jobs import RefusedError
from memagent.server.outage import DISK, away

_LOG = logging.getLogger("memagent.server")
_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def code_of(error: Exception) -> int:
    """The status for an error of a route."""
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, RefusedError):
        return error.code
    if away(error) == DISK:
        return 507
    return 400 if isinstance(error, ConfigError | DocumentError) else 409 if isinstance(error, JournalError) else 500


def answer(code: int, message: str, param: str | None = None, headers: dict[str, str] | None = None) -> JSONResponse:
    """The answer to a request that is refused, or that failed."""
    kind = _TYPES.get(code, "invalid_request_error" if code < 500 else "server_error")
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": None}}, code, headers)


class Unforeseen:
    """Answers a request that ended with an error which no route foresaw, if nothing was answered yet. The message of such
    an error may quote a document, so that only its kind is told and logged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            if scope["type"] != "http" or begun:
                raise
            _LOG.exception("a request failed")
            response = answer(507, f"{DISK}: try again once there is room", headers={"Retry-After": "30"})
            if away(error) != DISK:
                response = answer(500, f"an error in memagent ({type(error).__name__}); the log has more")
            await response(scope, receive, send)
