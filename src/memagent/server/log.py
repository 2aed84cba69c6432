"""What the service logs, as text or as JSON: a line for each request and for each reading that ends.

Lines have names, numbers and ids. The message of an error may quote a document, an answer, or the reply of a model: of an
error only its kind is logged, and the places in the code that it came through.
"""

from __future__ import annotations

import errno
import json
import logging
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, TypeAlias

Form: TypeAlias = Literal["text", "json"]
_FIELDS = "memagent_fields"


def set_up(form: Form) -> None:
    """Logs to standard error: what we have to say, and warnings of libraries. (Those that send requests log their URLs,
    which may have a key in them, as information.)"""
    handler = logging.StreamHandler()
    handler.setFormatter(Lines(form))
    handler.addFilter(_seldom)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("memagent").setLevel(logging.INFO)


_FULL, _MINUTE = "socket.accept() out of system resource", 60.0


class _Seldom:
    """Lets through, once a minute, that no connection can be taken because there are no file descriptors left: asyncio
    says so some thousands of times a second."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith(_FULL):
            return True
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _MINUTE
        return True


_seldom = _Seldom()


def told(log: logging.Logger, event: str, **fields: Any) -> None:
    """Logs that something happened. Fields that are None are left out."""
    log.info(event, extra={_FIELDS: {name: value for name, value in fields.items() if value is not None}})


_request: ContextVar[dict[str, Any]] = ContextVar("what the line of the request under way tells")


@contextmanager
def line_of_request() -> Iterator[dict[str, Any]]:
    """What the line of a request will tell, to which `noted` adds in this block and in the threads that it starts."""
    fields: dict[str, Any] = {}
    token = _request.set(fields)
    try:
        yield fields
    finally:
        _request.reset(token)


def noted(**fields: Any) -> None:
    """Adds fields to the line of the request under way, if one is."""
    _request.get({}).update(fields)


class Lines(logging.Formatter):
    """A record as one line."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        seconds = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"
        fields = {**getattr(record, _FIELDS, {}), **_trouble(record)}
        said = _message(record)
        if self._form == "json":
            head = {"time": seconds, "level": record.levelname.lower(), "logger": record.name, "message": said}
            return json.dumps({**head, **fields})
        more = "".join(f" {name}={value}" for name, value in fields.items())
        return f"{seconds} {record.levelname} {record.name} {_one_line(said)}{more}"


def _message(record: logging.LogRecord) -> str:
    """The message of a record, with kinds in place of errors."""
    said = str(_kind(record.msg))
    if record.name == "asyncio":  # what follows the first line describes tasks, with the messages of their errors
        said = said.partition("\n")[0]
    if isinstance(record.args, tuple):
        return said % tuple(map(_kind, record.args)) if record.args else said
    return said % record.args


def _kind(value: Any) -> Any:
    if not isinstance(value, BaseException):
        return value
    status = getattr(value, "status", None)
    return f"{_name(value)}{f', HTTP {status}' if status else ''}"


def _name(error: BaseException) -> str:
    """Its class, and how the system or SQLite calls what happened: OSError ENOSPC, OperationalError SQLITE_FULL."""
    number = error.errno if isinstance(error, OSError) else None
    code = errno.errorcode.get(number) if number is not None else getattr(error, "sqlite_errorname", None)
    return f"{type(error).__name__}{f' {code}' if code else ''}"


def _trouble(record: logging.LogRecord) -> dict[str, Any]:
    """What a record tells of an error."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return {}
    places = traceback.extract_tb(error.__traceback__)
    where = [f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in places]
    return {"error": _name(error), "at": " > ".join(where)}


def _one_line(text: str) -> str:
    return " ".join(text.split())
