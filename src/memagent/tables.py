"""What is wrong with a table or a record that was given, in one line."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

# These say the value themselves, or are about one that is not there or is many.
_COMPLETE = {"value_error", "missing", "too_short", "too_long"}
_TABLES = {"model_type", "dict_type"}


def problem(error: ValidationError, kind: type[BaseModel]) -> str:
    """What pydantic found wrong with a `kind`: which field, what is said of it, what it was given."""
    place, said = finding(error, kind)
    return f"{place or 'the file'}: {said}"


def finding(error: ValidationError, kind: type[BaseModel] | None = None, branches: Collection[str] = ()) -> tuple[str, str]:
    """Where a thing is that is wrong, empty for the whole; and what is said of it, with what was given.

    Of a field that does not exist: those of `kind` that do. A union names the branch it tried, such as "tuple[int, int]":
    no field has such a name, and those without brackets are given as `branches`.
    """
    first = telling(error.errors())
    parts = [part for part in first["loc"] if "[" not in str(part) and part not in branches]
    place = ".".join(map(str, parts))
    if kind and first["type"] == "extra_forbidden":
        return place, f"there is no such field; there are {', '.join(_table(kind, parts[:-1]).model_fields)}"
    said = first["msg"].removeprefix("Value error, ")
    if first["type"] in _TABLES:
        said = "Input should be a table (an object, in JSON)"
    given = "" if first["type"] in _COMPLETE else f", not {reprlib.repr(first['input'])}"
    return place, said + given


def telling(errors: Sequence[ErrorDetails]) -> ErrorDetails:
    """The error that says most: what is wrong before what is missing, which may only be misspelt; within a field the one
    that lies deepest, which is in the branch of a union that was meant."""
    begun = next((error for error in errors if error["type"] != "missing"), errors[0])
    same = [error for error in errors if error["loc"][:1] == begun["loc"][:1]]
    return max(same, key=lambda error: (len(error["loc"]), error["type"] != "missing"))


def _table(kind: type[BaseModel], place: Sequence[int | str]) -> type[BaseModel]:
    """The model at a place within a `kind`: names of fields, and numbers in lists."""
    for part in place:
        if isinstance(part, str):
            kind = next(_models(kind.model_fields[part].annotation))
    return kind


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
