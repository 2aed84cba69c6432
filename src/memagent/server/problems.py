"""What went wrong: its status, and the answer in OpenAI's form."""

from __future__ import annotations

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from memagent.errors import ConfigError, DocumentError, JournalError
from memagent.server.jobs import RefusedError

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def code_of(error: Exception) -> int:
    """The status for an error of a route."""
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, RefusedError):
        return 429
    return 400 if isinstance(error, ConfigError | DocumentError) else 409 if isinstance(error, JournalError) else 500


def answer(code: int, message: str, param: str | None = None, headers: dict[str, str] | None = None) -> JSONResponse:
    """The answer to a request that is refused, or that failed."""
    kind = _TYPES.get(code, "invalid_request_error" if code < 500 else "server_error")
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": None}}, code, headers)
