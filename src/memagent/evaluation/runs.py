"""Reads run folders: the configuration from `run.json`, and one record per line from `records.jsonl`.

Records are streamed: a run of thousands of long readings is never held as a whole. A run that is not finished may be looked
at while it is being written; its last line may be torn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from memagent.core.readers import RENAMED
from memagent.errors import ConfigError, TaskError
from memagent.evaluation.records import READABLE_VERSIONS, RECORD_VERSION, Record, RecordedTurn, record_from_json

RUN_SCHEMA = "memagent.run"
RUN_VERSION = 1
_MOST = 10**12  # limit of tokens, characters and readings; a larger number means damage
_OBJECTS = ("settings", "comparison", "samples", "versions", "machine")
_OBJECTS_IN_SETTINGS = ("budgets", "sampling", "profile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A record and the position of its line in the file, in bytes."""

    record: Record
    place: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run folder: its header (`run.json`), and its records, which stay on disk."""

    folder: Path
    header: Mapping[str, Any]

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Raises ConfigError if it is not a run folder that this version can read."""
        folder = Path(folder)
        header = read_header(folder)
        _opened(folder / "records.jsonl").close()
        return cls(folder=folder, header=header)

    @property
    def finished(self) -> bool:
        return self.header.get("finished") is not None

    @property
    def expected(self) -> int:
        """The number of records of the finished run; 0 if the header does not contain it."""
        return int(self.header.get("samples", {}).get("count", 0)) * int(self.header.get("attempts", 1))

    def records(self) -> Iterator[Placed]:
        """The records in the order they were written.

        Raises TaskError, with file and line, for a line that is no record, for another version and for a reading that is
        there twice. Only the last line of an unfinished run may be torn, and is then left out.
        """
        path = self.folder / "records.jsonl"
        seen: dict[tuple[str, int], int] = {}
        place = 0
        with _opened(path) as lines:
            for number, line in enumerate(lines, 1):
                if not (self.finished or line.endswith(b"\n")):
                    return
                record = _record(line, path, number)
                if seen.setdefault(record.key, number) != number:
                    first = seen[record.key]
                    raise TaskError(
                        f"{path}, line {number}: attempt {record.attempt} of {record.sample} is already in line {first}"
                    )
                yield Placed(record=record, place=place, size=len(line))
                place += len(line)

    def model_of(self, record: Record) -> str:
        """The identity of the model that ended a reading; "" if no turn was made, or the header does not contain it."""
        return record.identity or str(self.header.get("model") or "") if record.turns else ""

    def load(self, place: int, size: int) -> Record:
        """The record at a place that `records` returned."""
        path = self.folder / "records.jsonl"
        with _opened(path) as file:
            file.seek(place)
            return _record(file.read(size), path, 0)


def check_apart(folders: Sequence[str | Path]) -> None:
    """Raises ConfigError if two of these are the same folder."""
    if len({Path(folder).resolve() for folder in folders}) < len(folders):
        raise ConfigError("a run folder was given twice: pass each folder once")


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}. A report needs the records of a run") from error


def read_header(folder: Path) -> dict[str, Any]:
    """The `run.json` of a run folder. Raises ConfigError if there is none that this version can read."""
    path = folder / "run.json"
    try:
        header = json.loads(path.read_bytes())
    except OSError as error:
        reason = "it contains no run.json" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise ConfigError(f"{folder} is not a run folder of memagent eval: {reason}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    if not isinstance(header, dict) or header.get("schema") != RUN_SCHEMA:
        raise ConfigError(f"{path} does not describe a run of memagent eval: its schema is not {RUN_SCHEMA!r}")
    if header.get("version") != RUN_VERSION:
        raise ConfigError(
            f"{path} has version {header.get('version')!r}, but this memagent reads version {RUN_VERSION}:"
            " use the memagent that wrote it, or repeat the run in another folder"
        )
    for name, value, kind, fits in _header_fields(header):
        if not fits(value):
            raise ConfigError(f"{path} is damaged: its {name} must be {kind}, not {_brief(value)}")
    return {**header, "reader": RENAMED.get(header["reader"], header["reader"])} if "reader" in header else header


def _header_fields(header: Mapping[str, Any]) -> Iterator[tuple[str, Any, str, Callable[[Any], bool]]]:
    """(name, value, expected kind, check) of the values to verify. An object comes before its contents."""
    for name in _OBJECTS:
        yield name, header.get(name, {}), "an object", _is_object
    settings, samples = header.get("settings", {}), header.get("samples", {})
    for name in _OBJECTS_IN_SETTINGS:
        yield f"settings.{name}", settings.get(name, {}), "an object", _is_object
    yield "samples.count", samples.get("count", 0), "a number of samples", _is_count
    yield "attempts", header.get("attempts", 1), "a number of readings", _is_count
    texts = {name: header.get(name) for name in ("reader", "model", "command", "started", "finished")}
    texts |= {f"samples.{name}": samples.get(name) for name in ("path", "sha256")}
    for name, value in texts.items():
        yield name, value, "text", _is_text_or_none


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST and math.isfinite(value)


def _is_share(value: Any) -> bool:
    return _is_number(value) and value <= 1


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"


def _record(line: bytes, path: Path, number: int) -> Record:
    where = f"{path}, line {number}"
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{where}: not a line of JSON: {error}") from error
    version = values.get("version") if isinstance(values, dict) else None
    if version not in READABLE_VERSIONS:
        raise TaskError(
            f"{where}: the record has version {version!r}, but this memagent reads up to version {RECORD_VERSION}"
        )
    try:
        record = record_from_json(values)
        _check(record)
    except _DamageError as damage:
        raise TaskError(f"{where}: a damaged record: {damage}") from None
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise TaskError(f"{where}: not a reading record: {type(error).__name__}: {error}") from error
    return record


class _DamageError(Exception):
    """A record has an invalid value."""


def _check(record: Record) -> None:
    """Checks every value of a record. Raises _DamageError."""
    _each(record, ("sample", "task", "question", "answer", "scorer", "identity"), "text", _is_text)
    _each(record, ("error", "error_kind"), "text or null", _is_text_or_none)
    _each(record, ("attempt", "tokens", "characters"), f"a whole number from 0 to {_MOST:,}", _is_count)
    _each(record, ("seconds", "wall"), "a number from 0", _is_number)
    _each(record, ("meta", "scores"), "an object", _is_object)
    _value("status", record.status, "answered or failed", record.status in ("answered", "failed"))
    _value("mode", record.mode, "any or all", record.mode in ("any", "all"))
    for place, answer in enumerate(record.answers):
        _value(f"answers[{place}]", answer, "text", isinstance(answer, str))
    for name, score in record.scores.items():
        _value(f"scores.{name}", score, "a number from 0 to 1", _is_share(score))
    if "target" in record.meta:
        target = record.meta["target"]
        fits = _is_count(target) and target > 0
        _value("meta.target", target, f"the requested length in tokens, a whole number from 1 to {_MOST:,}", fits)
    for place, fact in enumerate(record.facts):
        _each(fact, ("text", "key", "value"), "text", _is_text, f"facts[{place}].")
        _each(fact, ("start", "end"), "a place in the document", _is_count, f"facts[{place}].")
        _each(fact, ("needed",), "true or false", _is_flag, f"facts[{place}].")
    for span in record.shown or ():
        _value("shown", [span.start, span.end], "places in the document", _is_count(span.start) and _is_count(span.end))
    for place, turn in enumerate(record.turns):
        _check_turn(turn, f"turns[{place}].")


def _check_turn(turn: RecordedTurn, where: str) -> None:
    _each(turn, ("id", "kind", "outcome"), "text", _is_text, where)
    _each(turn, ("memory", "reply"), "text or null", _is_text_or_none, where)
    _each(turn, ("number", "prompt_tokens", "completion_tokens", "cached_tokens"), "a whole number", _is_count, where)
    _each(turn, ("seconds",), "a number from 0", _is_number, where)
    for span in turn.spans:
        if not (_is_count(span.start) and _is_count(span.end)):
            _value(f"{where}spans", [span.start, span.end], "places in the document", False)


def _each(values: object, names: Iterable[str], kind: str, fits: Callable[[Any], bool], where: str = "") -> None:
    for name in names:
        value = getattr(values, name)
        if not fits(value):
            _value(f"{where}{name}", value, kind, False)


def _value(name: str, value: Any, kind: str, fits: bool) -> None:
    if not fits:
        raise _DamageError(f"{name} must be {kind}, not {_brief(value)}")
