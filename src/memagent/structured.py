"""Answers that are JSON: the schema they have to follow, and how they are read from a reply.

Schemas are JSON Schema (https://json-schema.org), by default draft 2020-12. Nothing is fetched: a reference to another
document is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, time
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema
from jsonschema import FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY as SPECIFICATIONS
from pydantic import BaseModel
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from memagent import strict_json
from memagent.errors import ConfigError

SchemaSource: TypeAlias = type[BaseModel] | Mapping[str, Any] | str | Path

# What says nothing about a value. A schema of nothing else is likely to be an example of an answer.
_SILENT = frozenset("$schema $id $comment $defs definitions $vocabulary title description examples default".split())
_KNOWN = frozenset(jsonschema.Draft202012Validator.VALIDATORS) | {"$ref", "definitions", "then", "else"}
_DATA = frozenset({"const", "enum", "examples", "default"})  # what stands in these is no schema
_MOST_SAID = 200  # characters of a mistake
_ITSELF = "It is the schema itself, not an answer that follows it"
_MOST_TRIED = 50  # places of a reply where JSON may begin
_OPENING = re.compile(r"[{\[]")
_FENCE = re.compile(r"```[\w-]*\n(.*?)\n?```", re.DOTALL)
_CREDENTIALS = re.compile(r"://[^/\s:@\[\]^$]+:[^/\s@]+@")
_PROBES: tuple[Any, ...] = (None, True, 0, "", [], {})
_DEEPEST = 100  # levels of a schema: what takes it apart afterwards is recursive


def schema_text(given: SchemaSource) -> str:
    """A schema as one line of JSON: from a file, a mapping, or a pydantic model. Raises ConfigError if it is no schema.

    Slashes of URLs are escaped, so that what keeps credentials out of journals has nothing to change in it.
    """
    what, schema = _given(given)
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{what} is not JSON: {error}") from error
    if _CREDENTIALS.search(text):
        raise ConfigError(f"{what} has a URL with a password in it: leave it out, readings are kept in a journal")
    _check(json.loads(text), what)
    return text.replace("://", r":\/\/")


def _given(given: SchemaSource) -> tuple[str, Any]:
    """What a schema is called in messages, and the schema."""
    if isinstance(given, str | Path):
        return f"the schema {given}", _parsed(Path(given))
    if not isinstance(given, type):
        return "the schema", given
    what = f"the schema of {given.__name__}"
    try:
        return what, given.model_json_schema()
    except Exception as error:  # pydantic has several, and a class that is no model has no such method
        raise ConfigError(f"{what} cannot be made: {_short(str(error))}") from error


class JsonForm:
    """The form of an answer that has to follow a schema, as `schema_text` gives it."""

    def __init__(self, schema: str) -> None:
        self.schema = schema.replace(r":\/\/", "://")
        self.name = f"json-schema {hashlib.sha256(schema.encode()).hexdigest()[:16]}"
        self._own = json.loads(schema)
        self._validator = _validator(self._own)

    def read(self, reply: str) -> str:
        """The JSON of a reply on one line: the last value in it that follows the schema. Words and a Markdown fence around
        it are left out.

        Raises ValueError that says where the longest value of the reply does not follow it, or why there is none.
        """
        answers, mistake, longest, flaws = list[Any](), "", -1, list[str]()
        try:
            for value, length in _values(reply, flaws):
                wrong = _ITSELF if value == self._own else self._mistake(value)
                if not wrong:
                    answers = [value]
                elif length > longest:
                    mistake, longest = wrong, length
            if not answers:
                raise ValueError(mistake or next(iter(flaws), "It is not complete JSON"))
            return _line(answers[0])
        except RecursionError:
            raise ValueError("The JSON is nested too deeply") from None

    def _mistake(self, value: Any) -> str:
        """What is wrong with a value; "" if it follows the schema."""
        try:
            error = best_match(self._validator.iter_errors(value))
        except RecursionError:
            raise
        except Exception as failed:  # a number that no float holds, a pattern of an older draft
            return f"It cannot be checked ({type(failed).__name__})"
        return "" if error is None else _said(error)


@lru_cache(maxsize=16)
def json_form(schema: str) -> JsonForm:
    """The form of a schema; the same one each time."""
    return JsonForm(schema)


def _said(error: ValidationError | SchemaError) -> str:
    """Where and what, with a value that is shown in short."""
    value = json.dumps(error.instance, ensure_ascii=False, default=str)
    shown = value if len(value) <= 60 else f"{value[:59]}…"
    return _short(f"{error.json_path}: {error.message.replace(repr(error.instance), shown)}")


def _values(reply: str, flaws: list[str]) -> Iterator[tuple[Any, int]]:
    """The JSON values in a reply, with their lengths: all of it, or of a fence, or the objects and arrays between other
    words, up to one that is broken or cut off, whose parts are no answer. `flaws` is told of numbers that none can hold."""
    decoder, text = strict_json.decoder(), reply.strip()
    fence = _FENCE.search(text)
    for whole in (text, fence[1].strip() if fence else ""):
        try:
            yield decoder.decode(whole), len(whole)
        except json.JSONDecodeError:
            continue
        except ValueError as error:
            flaws.append(f"It cannot be read: {error}")
        else:
            return
    place = 0
    for _ in range(_MOST_TRIED):
        found = _OPENING.search(text, place)
        if found is None:
            return
        try:
            value, end = decoder.raw_decode(text, found.start())
        except json.JSONDecodeError as error:
            place = found.end()
            if '"' in text[place : error.pos + 1]:  # JSON that is broken, not words in brackets
                if error.pos == len(text) or error.msg.startswith("Unterminated string"):
                    raise ValueError("It is not complete JSON") from None
                return
        except ValueError as error:
            flaws.append(f"It cannot be read: {error}")
            return
        else:
            yield value, end - found.start()
            place = end


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


def _parsed(path: Path) -> Any:
    try:
        return strict_json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the schema {path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the schema {path} is not JSON: {error}") from error


def _check(schema: Any, what: str) -> None:
    """Raises ConfigError if this is no schema, says nothing, or refers to what it does not have."""
    if not isinstance(schema, dict):
        kind = "a list" if isinstance(schema, list) else repr(schema)
        raise ConfigError(f"{what} is {kind}: a schema is an object such as {{'type': 'object', …}}")
    if _deeper_than(_DEEPEST, schema):
        raise ConfigError(f"{what} is nested more deeply than {_DEEPEST} levels: put what repeats under $defs")
    if not (set(schema) & _KNOWN) - _SILENT:
        raise ConfigError(f"{what} accepts any answer: it has no keyword such as type, properties, items or enum")
    try:
        validator_for(schema, default=jsonschema.Draft202012Validator).check_schema(schema)
        _check_references(schema, what)
        for probe in _PROBES:
            _validator(schema).is_valid(probe)
    except SchemaError as error:
        raise ConfigError(f"{what} is no JSON Schema: {_said(error)}") from error
    except RecursionError:
        raise ConfigError(f"{what} is nested too deeply, or refers to itself without end") from None
    except ConfigError:
        raise
    except Exception as error:  # a $schema that is no text, a pattern that no engine compiles
        raise ConfigError(f"{what} cannot be used: {type(error).__name__}: {_short(str(error))}") from error


def _deeper_than(levels: int, value: Any) -> bool:
    """Whether a JSON value has more levels of objects and lists."""
    level = [value]
    for _ in range(levels):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
        ]
    return any(isinstance(inner, dict | list) for inner in level)


def _check_references(schema: dict[str, Any], what: str) -> None:
    """Raises ConfigError for references that lead nowhere or in a circle. Those of bundled schemas, which have an $id of
    their own, are left to validation."""
    whole: Resource[Any] = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = SPECIFICATIONS.resolver_with_root(whole)
    for reference in _references(schema):
        seen, place = set[str](), reference
        while place not in seen:
            seen.add(place)
            try:
                target = resolver.lookup(place).contents
            except Unresolvable:
                raise ConfigError(
                    f"{what} refers to {place!r}, which it does not have, and nothing is fetched: put it under $defs"
                ) from None
            if not isinstance(target, dict) or not isinstance(target.get("$ref"), str):
                break
            place = target["$ref"]
        else:
            raise ConfigError(f"{what} refers to itself without end, at {reference!r}")


def _references(value: Any, root: bool = True) -> Iterator[str]:
    if isinstance(value, Mapping) and (root or "$id" not in value):
        for name in ("$ref", "$dynamicRef"):
            if isinstance(reference := value.get(name), str):
                yield reference
        for name, item in value.items():
            if name not in _DATA:
                yield from _references(item, False)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item, False)


def _validator(schema: Any) -> Validator:
    """A validator that fetches nothing and checks the formats that `_FORMATS` knows."""
    kind = validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema, registry=Registry(), format_checker=_FORMATS)


_FORMATS = FormatChecker(("date", "email", "ipv4", "ipv6", "regex", "uuid"))


@_FORMATS.checks("date-time", ValueError)
def _date_time(value: object) -> bool:
    return not isinstance(value, str) or bool(datetime.fromisoformat(value) and "T" in value.upper())


@_FORMATS.checks("time", ValueError)
def _time(value: object) -> bool:
    return not isinstance(value, str) or time.fromisoformat(value) is not None


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SAID else text[: _MOST_SAID - 1] + "…"
