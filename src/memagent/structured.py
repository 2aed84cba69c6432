"""Answers that are JSON: the schema they have to follow, and how they are read from a reply.

Schemas are JSON Schema (https://json-schema.org), by default draft 2020-12. Nothing is fetched: a reference to another
document is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import jsonschema
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY as SPECIFICATIONS
from pydantic import BaseModel
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from memagent.errors import ConfigError
from memagent.journal.redaction import strip_urls

SchemaSource: TypeAlias = type[BaseModel] | Mapping[str, Any] | str | Path

# A schema without any of these accepts everything: it is likely to be an example of an answer.
_CONSTRAINTS = frozenset({"type", "properties", "items", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "required"})
_MOST_SAID = 300  # characters of a mistake
_MOST_TRIED = 20  # places of a reply where JSON may begin
_PROBES: tuple[Any, ...] = (None, True, 0, "", [], {})
_OPENING = re.compile(r"[{\[]")


def schema_text(given: SchemaSource) -> str:
    """A schema as one line of JSON: from a file, a mapping, or a pydantic model. Raises ConfigError if it is no schema."""
    if isinstance(given, str | Path):
        what, schema = f"the schema {given}", _parsed(Path(given))
    elif isinstance(given, type) and issubclass(given, BaseModel):
        what, schema = f"the schema of {given.__name__}", given.model_json_schema()
    else:
        what, schema = "the schema", given
    try:
        text = json.dumps(_without_secrets(schema), ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{what} is not JSON: {error}") from error
    _check(json.loads(text), what)
    return text


class JsonForm:
    """The form of an answer that has to follow a schema, as `schema_text` gives it."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.name = f"json-schema {hashlib.sha256(schema.encode()).hexdigest()[:16]}"
        self._validator = _validator(json.loads(schema))

    def read(self, reply: str) -> str:
        """The JSON of a reply on one line. Words and a Markdown fence around it are left out.

        Raises ValueError that says where it does not follow the schema.
        """
        mistakes: list[str] = []
        try:
            for value in _values(reply):
                if (error := best_match(self._validator.iter_errors(value))) is None:
                    return _line(value)
                mistakes.append(f"{error.json_path}: {error.message}")
        except RecursionError:
            raise ValueError("The JSON is nested too deeply") from None
        raise ValueError(_short(mistakes[0] if mistakes else "It is not complete JSON"))


@lru_cache(maxsize=16)
def json_form(schema: str) -> JsonForm:
    """The form of a schema; the same one each time."""
    return JsonForm(schema)


def _values(reply: str) -> Iterator[Any]:
    """The JSON values in a reply: all of it, or the objects and arrays between other words, up to one that is broken or cut
    off, whose parts are no answer."""
    decoder, text = json.JSONDecoder(parse_constant=_no_constant), reply.strip()
    with suppress(ValueError):
        yield decoder.decode(text)
        return
    place = 0
    for _ in range(_MOST_TRIED):
        found = _OPENING.search(text, place)
        if found is None:
            return
        try:
            value, place = decoder.raw_decode(text, found.start())
        except json.JSONDecodeError as error:
            place = found.end()
            if text[place : error.pos].strip():
                return
        except ValueError:
            return
        else:
            yield value


def _line(value: Any) -> str:
    """Raises ValueError for what no other program could read."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("The JSON has a lone surrogate, which is no character") from None
    except ValueError:
        raise ValueError("The JSON has a number that is too large") from None
    return text


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value of JSON")


def _parsed(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"), parse_constant=_no_constant)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the schema {path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the schema {path} is not JSON: {error}") from error


def _check(schema: Any, what: str) -> None:
    """Raises ConfigError if this is no schema, constrains nothing, or refers to what it does not have."""
    if not isinstance(schema, dict):
        kind = "a list" if isinstance(schema, list) else repr(schema)
        raise ConfigError(f"{what} is {kind}: a schema is an object such as {{'type': 'object', …}}")
    try:
        validator_for(schema, default=jsonschema.Draft202012Validator).check_schema(schema)
        if not _CONSTRAINTS & set(schema):
            raise ConfigError(f"{what} accepts any answer: it has none of {', '.join(sorted(_CONSTRAINTS))}")
        _check_references(schema, what)
        for probe in _PROBES:
            _validator(schema).is_valid(probe)
    except SchemaError as error:
        raise ConfigError(f"{what} is no JSON Schema: {_short(f'{error.json_path}: {error.message}')}") from error
    except RecursionError:
        raise ConfigError(f"{what} is nested too deeply, or refers to itself without end") from None


def _check_references(schema: dict[str, Any], what: str) -> None:
    whole: Resource[Any] = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = SPECIFICATIONS.resolver_with_root(whole)
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise ConfigError(
                f"{what} refers to {reference!r}, which it does not have, and nothing is fetched: put it under $defs"
            ) from None


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(reference := value.get("$ref"), str):
            yield reference
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _validator(schema: Any) -> Validator:
    """A validator that checks formats and fetches nothing."""
    kind = validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema, registry=Registry(), format_checker=kind.FORMAT_CHECKER)


def _without_secrets(value: Any) -> Any:
    """The same value without credentials in URLs, so that it can be written to a journal."""
    if isinstance(value, str):
        return strip_urls(value)
    if isinstance(value, Mapping):
        return {name: _without_secrets(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(item) for item in value]
    return value


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SAID else text[: _MOST_SAID - 1] + "…"
