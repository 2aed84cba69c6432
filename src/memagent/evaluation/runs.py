"""Run folders, read: `run.json` says what was run, `records.jsonl` has one record a line.

Records are streamed: a run of thousands of long readings is never held as a whole. A run that is not finished may be looked
at while it is being written; its last line may be torn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from memagent.errors import ConfigError, TaskError
from memagent.evaluation.records import RECORD_VERSION, Record, record_from_json

RUN_SCHEMA = "memagent.run"
RUN_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A record and where its line stands in the file, in bytes."""

    record: Record
    place: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run folder: its header, which is `run.json`, and its records, which stay on disk."""

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
        """How many records the run has when it is finished; 0 if the header does not say."""
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
                        f"{path}, line {number}: attempt {record.attempt} of {record.sample} stands in line {first} already"
                    )
                yield Placed(record=record, place=place, size=len(line))
                place += len(line)

    def load(self, place: int, size: int) -> Record:
        """One record again, by the place that `records` gave."""
        path = self.folder / "records.jsonl"
        with _opened(path) as file:
            file.seek(place)
            return _record(file.read(size), path, 0)


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}: without its records a run cannot be reported"
        ) from error


def read_header(folder: Path) -> dict[str, Any]:
    """The `run.json` of a run folder. Raises ConfigError if there is none that this version can read."""
    path = folder / "run.json"
    try:
        header = json.loads(path.read_bytes())
    except OSError as error:
        reason = "there is no run.json in it" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise ConfigError(f"{folder} is not the folder of a run of memagent eval: {reason}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    if not isinstance(header, dict) or header.get("schema") != RUN_SCHEMA:
        raise ConfigError(f"{path} does not describe a run of memagent eval: its schema is not {RUN_SCHEMA!r}")
    if header.get("version") != RUN_VERSION:
        raise ConfigError(
            f"{path} is of version {header.get('version')!r} and this memagent reads version {RUN_VERSION}:"
            " use the memagent that wrote it, or run it anew in another folder"
        )
    samples, attempts = header.get("samples", {}), header.get("attempts", 1)
    if not isinstance(samples, dict) or not isinstance(samples.get("count", 0), int) or not isinstance(attempts, int):
        raise ConfigError(f"{path} is damaged: its samples and attempts are {samples!r} and {attempts!r}")
    return header


def _record(line: bytes, path: Path, number: int) -> Record:
    where = f"{path}, line {number}"
    try:
        values = json.loads(line)
    except ValueError as error:
        raise TaskError(f"{where}: not a line of JSON: {error}") from error
    version = values.get("version") if isinstance(values, dict) else None
    if version != RECORD_VERSION:
        raise TaskError(f"{where}: a record of version {version!r}, and this memagent reads version {RECORD_VERSION}")
    try:
        return record_from_json(values)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TaskError(f"{where}: not a record of a reading: {type(error).__name__}: {error}") from error
