"""The fields of configurations as their models say them: what `memagent train fields` prints, and a page of the site."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from memagent.training.config import RunConfig, SftConfig
from memagent.training.fields import Part, Says, either
from memagent.training.recipe import Recipe
from memagent.training.rl_config import RlConfig

# What is listed: what every run has, and the files of the commands.
_MODELS: Mapping[str, type[Part]] = {"both": RunConfig, "sft": SftConfig, "rl": RlConfig, "recipe": Recipe}
_KINDS: Mapping[Any, str] = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path"}


@dataclass(frozen=True, slots=True)
class Row:
    """A field: its name, what it is, its default in TOML ("" for none), what it may be, and what it does."""

    name: str
    kind: str
    default: str
    allowed: str
    does: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a configuration: its place in `--set`, where N is a number, its head in TOML (both empty for the file
    itself), what it is, and its fields."""

    place: str
    head: str
    says: str
    rows: Sequence[Row]


def tables(what: str) -> list[Table]:
    """The tables of a file for `sft`, `rl` or `recipe`."""
    return list(_tables(_MODELS[what]))


def chapter(what: str) -> list[Table]:
    """The same without what sft and rl have alike, which `both` has."""
    ours, theirs = ({(table.place, row) for table in tables(kind) for row in table.rows} for kind in ("sft", "rl"))
    alike, found = ours & theirs, list[Table]()
    for table in tables(what):
        rows = [row for row in table.rows if ((table.place, row) in alike) == (what == "both")]
        found += [replace(table, rows=rows)] if rows else []
    return found


def _tables(model: type[Part], place: str = "", path: str = "", many: bool = False) -> Iterator[Table]:
    """The table of a model, and those inside it. `many`: it is one of a list."""
    says = " ".join((model.__doc__ or "").split())
    head = f"[[{path}]]" if many else f"[{path}]" if path else ""
    yield Table(place, head, says, [_row(name, field) for name, field in model.model_fields.items()])
    for name, field in model.model_fields.items():
        if (inner := _model(field.annotation)) is not None:
            listed = get_origin(field.annotation) is list
            number = [name, "N"] if listed else [name]
            yield from _tables(inner, _joined(place, *number), _joined(path, name), listed)


def _joined(*names: str) -> str:
    return ".".join(name for name in names if name)


def _model(annotation: Any) -> type[Part] | None:
    """The model of a field that is a table, or a list of tables."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return annotation
    return next((found for one in get_args(annotation) if (found := _model(one)) is not None), None)


def _row(name: str, field: FieldInfo) -> Row:
    kind, allowed = _said(field.annotation, field.metadata)
    return Row(name, kind, _default(field), allowed, " ".join((field.description or "").split()))


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    if field.default is None or isinstance(field.default, Part):
        return ""
    return json.dumps(field.default)


def _said(annotation: Any, metadata: Sequence[Any] = ()) -> tuple[str, str]:
    """What a value is, and what it may be."""
    flat = [inner for one in metadata for inner in (one.metadata if isinstance(one, FieldInfo) else [one])]
    says = next((one for one in flat if isinstance(one, Says)), Says())
    kind, allowed = _plain(annotation)
    return says.kind or kind, says.allowed or ", ".join(part for part in (_bounds(flat), allowed) if part)


def _plain(annotation: Any) -> tuple[str, str]:
    """The same of a type without what is annotated to it."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _said(inside[0], inside[1:])
    if origin in (Union, UnionType):
        return _said(next(one for one in inside if one is not type(None)))
    if origin is Literal:
        return "text", either(inside)
    if _model(annotation) is not None:
        return ("list of tables" if origin is list else "table"), ""
    if origin is dict:
        return "table", ""
    if origin in (list, tuple):
        return _several(inside)
    return _KINDS[annotation], ""


def _several(inside: Sequence[Any]) -> tuple[str, str]:
    """A list of values, or a pair."""
    (kind, allowed), pair = _said(inside[0]), len(inside) == 2 and inside[1] is not Ellipsis
    return f"{'two' if pair else 'list of'} {kind}s", f"each {allowed}" if allowed else ""


def _bounds(metadata: Sequence[Any]) -> str:
    """The bounds of a number, or of how many values there may be."""

    def all_of(name: str) -> list[Any]:
        return [getattr(one, name) for one in metadata if hasattr(one, name)]

    least, most = (_number(choose(given)) if given else "" for choose, given in ((max, all_of("ge")), (min, all_of("le"))))
    if least and most:
        return f"{least} to {most}"
    words = [f"at least {least}"] if least else []
    words += [f"above {_number(value)}" for value in all_of("gt")]
    words += ["at least one" for value in all_of("min_length") if value == 1]
    words += [f"at most {most}"] if most else []
    words += [f"below {_number(value)}" for value in all_of("lt")]
    words += [f"at most {value} of them" for value in all_of("max_length")]
    return ", ".join(words)


def _number(value: Any) -> str:
    power = int(value).bit_length() - 1
    return f"2^{power}" if power > 32 and value == 1 << power else f"{value:g}" if value < 1e6 else str(value)
