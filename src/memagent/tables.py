"""What is wrong with the tables of a file, in one line."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

# These say the value themselves, or are about one that is not there or is many.
_COMPLETE = {"value_error", "missing", "too_short", "too_long"}


def problem(error: ValidationError, kind: type[BaseModel]) -> str:
    """The first thing that pydantic found wrong with a `kind`: which field, what is said of it, what it was given.

    For a field that does not exist, those that do.
    """
    first = error.errors()[0]
    # A union names the branch it tried, such as "tuple[int, int]": no field has such a name.
    place = ".".join(str(part) for part in first["loc"] if "[" not in str(part))
    if first["type"] == "extra_forbidden":
        return f"there is no {place}; there are {', '.join(_table(kind, first['loc'][:-1]).model_fields)}"
    said = first["msg"].removeprefix("Value error, ")
    given = "" if first["type"] in _COMPLETE else f", not {reprlib.repr(first['input'])}"
    return f"{place or 'the file'}: {said}{given}"


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
