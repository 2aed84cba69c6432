"""What went wrong, as a status of HTTP."""

from __future__ import annotations

from fastapi import HTTPException

from memagent.errors import ConfigError, DocumentError, JournalError
from memagent.server.jobs import RefusedError


def code_of(error: Exception) -> int:
    """The status for an error of a route."""
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, RefusedError):
        return 429
    return 400 if isinstance(error, ConfigError | DocumentError) else 409 if isinstance(error, JournalError) else 500
