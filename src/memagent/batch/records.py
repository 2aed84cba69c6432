"""Records of a batch: one for each question of each job, answered or failed, and the table of all of them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

from memagent.batch.jobs import Job
from memagent.errors import MemagentError, MissingExtraError, failure_kind
from memagent.files import atomic_file, writing
from memagent.journal.redaction import strip_urls
from memagent.result import Reading

VERSION = 1
Key = tuple[str, str]
"""A job's id and a question."""

_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?[0-9][0-9.,]*(?:[eE][+-]?[0-9]+)? ?%?")
# Of the table, in order: the name of a column, and whether it holds a number.
COLUMNS: Mapping[str, type] = {
    "id": str,
    "document": str,
    "question": str,
    "answer": str,
    "status": str,
    "quote": str,
    "place": str,
    "unsupported": str,
    "verification_error": str,
    "error_kind": str,
    "error": str,
    "tokens": int,
    "turns": int,
    "prompt_tokens": int,
    "completion_tokens": int,
    "seconds": float,
    "meta": str,
}


def answered(job: Job, result: Reading) -> dict[str, Any]:
    """The record of a reading that ended, with an answer or an error."""
    values = result.to_json()
    del values["reading"]  # what is recorded leaves the journal
    error = result.error and strip_urls(result.error)
    return {**_begin(job, result.question), **values, "error": error, "error_kind": failure_kind(result.cause)}


def failed(job: Job, question: str, error: MemagentError) -> dict[str, Any]:
    """The record of a reading that could not begin."""
    empty = Reading(question=question, answer="", memory="", error=str(error))
    return {**answered(job, empty), "error_kind": failure_kind(error)}


def key_of(record: Mapping[str, Any]) -> Key:
    """What a record is about."""
    return record["id"], record["question"]


def _begin(job: Job, question: str) -> dict[str, Any]:
    return {"version": VERSION, "id": job.id, "question": question, "paths": list(job.given), "meta": job.meta}


def dump(record: Mapping[str, Any]) -> bytes:
    """The line of a record."""
    return json.dumps(record, ensure_ascii=True, allow_nan=False).encode() + b"\n"


@dataclass(slots=True, kw_only=True)
class Summary:
    """What the records of a batch came to. `models` are the readings by the identity of their model: several, if its server
    moved. `seconds` is the sum over all readings, as if one had followed the other."""

    answered: int = 0
    failed: int = 0
    not_found: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    models: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]]) -> Summary:
        """The summary of records."""
        summary = cls()
        for record in records:
            summary._add(record)
        return summary

    def _add(self, record: Mapping[str, Any]) -> None:
        if record["error"] is None:
            self.answered += 1
            self.not_found += record["status"] == "not_found"
        else:
            self.failed += 1
            self.failures[record["error_kind"]] = self.failures.get(record["error_kind"], 0) + 1
        if record["identity"]:  # else the reading could not begin
            self.models[record["identity"]] = self.models.get(record["identity"], 0) + 1
        self.tokens += record["document"].get("tokens", 0)
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + record["usage"][name] + record["verification"][name])
        self.seconds += record["seconds"]


class Results:
    """The records in a file, in the order of their jobs, read a job at a time. Those of a job are in the order of its
    questions, which `questions` gives by the number of the job."""

    def __init__(self, file: Path, numbers: Mapping[str, int], questions: Callable[[int], Sequence[str]]) -> None:
        self._file = file
        self._numbers = numbers
        self._questions = questions

    def __iter__(self) -> Iterator[dict[str, Any]]:
        places = list[tuple[int, int]]()
        with self._file.open("rb") as stream:
            start = 0
            for line in stream:
                places.append((self._numbers[json.loads(line)["id"]], start))
                start += len(line)
            for number, group in groupby(sorted(places), itemgetter(0)):
                records = [self._read(stream, place) for _, place in group]
                if len(records) > 1:
                    asked = {question: place for place, question in enumerate(self._questions(number))}
                    records.sort(key=lambda record: asked.get(record["question"], len(asked)))
                yield from records

    @staticmethod
    def _read(stream: BinaryIO, place: int) -> dict[str, Any]:
        stream.seek(place)
        record: dict[str, Any] = json.loads(stream.readline())
        return record


def row(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record as a row of the table: the first quote, and what has no column of its own left out."""
    quote: Mapping[str, Any] = next(iter(record["quotes"]), {})
    values = {
        **record["usage"],
        **record,
        "document": "; ".join(record["paths"]),
        "unsupported": "; ".join(record["unsupported"]),
        "verification_error": record["verification_error"] or "",
        "quote": quote.get("cited_text"),
        "place": quote.get("place"),
        "tokens": record["document"].get("tokens"),
        "meta": None if record["meta"] is None else json.dumps(record["meta"], ensure_ascii=False),
    }
    return {name: values[name] for name in COLUMNS}


def write_csv(records: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Writes the table, whole or not at all. No cell is a formula to a spreadsheet.

    All text is quoted: left to itself, the writer quotes no lone carriage return, which ends a row for those who read it.
    """
    with atomic_file(path) as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        writer.writeheader()
        writer.writerows(
            {name: _no_formula(_encodable(value)) for name, value in row(record).items()} for record in records
        )


def write_parquet(records: Iterable[Mapping[str, Any]], path: Path, rows: int = 1000) -> None:
    """Writes the table as Parquet, `rows` at a time. Raises MissingExtraError without pyarrow."""
    arrow, parquet = check_parquet()
    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    schema = arrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    partial = path.with_name(f"{path.name}.partial")
    with writing(path):
        with parquet.ParquetWriter(partial, schema) as writer:
            held: list[dict[str, Any]] = []
            for record in records:
                held.append({name: _encodable(value) for name, value in row(record).items()})
                if len(held) == rows:
                    writer.write_table(arrow.Table.from_pylist(held, schema))
                    held = []
            writer.write_table(arrow.Table.from_pylist(held, schema))
        partial.replace(path)


def check_parquet() -> tuple[Any, Any]:
    """The library that writes Parquet. Raises MissingExtraError."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("--parquet", "parquet") from error
    return pyarrow, pyarrow.parquet


def _no_formula(value: Any) -> Any:
    """Text that a spreadsheet would calculate, with an apostrophe before it. Numbers stay what they are."""
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def _encodable(value: Any) -> Any:
    """Text without lone surrogates, which these files cannot hold."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
