"""What /openapi.json says: the routes with the errors that they give, and the keys that they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

_TEXT, _MAYBE = {"type": "string"}, {"type": ["string", "null"]}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {"message": _TEXT, "type": _TEXT, "param": _MAYBE, "code": _MAYBE},
        }
    },
}
_ANSWER = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
_ERRORS = {
    "4XX": {
        "description": "The request is refused: 400 not usable as sent, 401 no valid key, 404 not there, 409 not in this"
        " state, 413 too long, 429 too many now or today (Retry-After says when to try again).",
        **_ANSWER,
    },
    "5XX": {
        "description": "500 an error in memagent, 502 the model failed, 503 the service ends, 504 the deadline has passed,"
        " 507 no room on the disk.",
        **_ANSWER,
    },
}


def described(app: FastAPI, *, keys: bool) -> Callable[[], dict[str, Any]]:
    """What takes the place of `app.openapi`. `keys`: they are needed."""

    def schema() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(title=app.title, version=app.version, routes=app.routes)
            for operations in found["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)  # it is answered by 400
                    operation["responses"] |= _ERRORS
            parts = found["components"]
            kept = {name: one for name, one in parts["schemas"].items() if not name.endswith("ValidationError")}
            parts["schemas"] = kept | {"Error": _ERROR}
            if keys:
                parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
                found["security"] = [{"key": []}]
            app.openapi_schema = found
        return app.openapi_schema

    return schema
