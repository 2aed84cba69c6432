"""The folder of a batch.

batch.json         what may not change when the command is repeated: jobs, settings, model (if served, at its first address)
results.jsonl      one line for every question of every job, on disk before it counts as done
results.csv        the table of them, in the order of the jobs, when the command ends
journal.sqlite3    readings under way and those that failed, turn by turn
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from memagent.batch.jobs import Job, JobFile
from memagent.batch.records import VERSION, Key, Results, dump, key_of, write_csv, write_parquet
from memagent.errors import ConfigError
from memagent.files import locked, writing
from memagent.folders import USUALLY_FREE, check_same, mend, now, write_header
from memagent.journal import Journal
from memagent.journal.redaction import redact
from memagent.settings import as_begun

_SCHEMA = "memagent.batch"
_MAY_CHANGE = USUALLY_FREE | {"jobs.path", "batch"}


class BatchFolder:
    """An open batch. Open it with `BatchFolder.open`; close it, or use it as a context manager.

    `id` is the batch's own, for whatever is kept of it elsewhere.
    """

    def __init__(
        self, path: Path, jobs: JobFile, header: dict[str, Any], journal: Journal, stream: IO[bytes], stock: _Stock
    ) -> None:
        self.path = path
        self.jobs = jobs
        self.journal = journal
        self._stock = stock
        self._header = header
        self._stream = stream
        self._resources = ExitStack()
        self._forget_recorded()

    @property
    def done(self) -> int:
        """How many questions have a record."""
        return len(self._stock.answered) + len(self._stock.failed)

    @property
    def failures(self) -> int:
        """How many of them failed."""
        return len(self._stock.failed)

    def has(self, job: str, question: str) -> bool:
        """Whether a question of a job has its record."""
        return (job, question) in self._stock

    @property
    def id(self) -> str:
        return str(self._header["batch"])

    @property
    def identity(self) -> str:
        """The model that the batch was begun with."""
        return str(next(iter(self._header["settings"].values()))["identity"])

    @classmethod
    def open(cls, path: Path, jobs: JobFile, config: Mapping[str, Any], *, retry_failed: bool = False) -> BatchFolder:
        """Creates the folder, or goes on with the batch in it. `retry_failed`: failures are forgotten, and tried again.

        A served model may be at another address than before. Raises ConfigError naming every setting that differs, a folder
        that is no batch, or one that another process is at.
        """
        header = {"schema": _SCHEMA, "version": VERSION, "batch": secrets.token_hex(8), **redact(config, "batch")}
        file, records = path / "batch.json", path / "results.jsonl"
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path} is a file: choose a folder for the results")
        with ExitStack() as resources:
            with writing(path):
                path.mkdir(parents=True, exist_ok=True)
            resources.enter_context(locked(path))
            if file.exists():
                known = _header(file)
                header["settings"] = _as_begun(header["settings"], known["settings"])
                check_same(f"the batch in {path}", known, header, _MAY_CHANGE)
                header |= {"batch": known["batch"], "started": known.get("started"), "finished": None}
            elif any(not one.name.startswith("batch.json.") for one in path.iterdir()):
                raise ConfigError(f"{path} is not empty and does not contain a batch: choose another folder")
            write_header(file, header)
            stock = _Stock.of(records, retry_failed)
            with writing(records):
                stream = resources.enter_context(records.open("ab"))
            journal = resources.enter_context(Journal.open(path / "journal.sqlite3"))
            folder = cls(path, jobs, header, journal, stream, stock)
            folder._resources = resources.pop_all()
        return folder

    def left(self) -> Iterator[tuple[Job, list[str]]]:
        """The jobs, long documents first, with their questions that have no record yet; each is loaded when it is asked
        for."""
        for job in self.jobs.longest_first():
            if left := [question for question in job.questions if not self.has(job.id, question)]:
                yield job, left

    def write(self, record: Mapping[str, Any], reading: str | None) -> None:
        """Adds a record and flushes it to disk. Its `reading` leaves the journal, unless it failed and can be retried."""
        with writing(self.path / "results.jsonl"):
            self._stream.write(dump(record))
            self._stream.flush()
            os.fsync(self._stream.fileno())
        self._stock.add(record)
        if reading is not None and record["error"] is None:
            self.journal.delete(reading)

    @property
    def results(self) -> Results:
        """The records, in the order of the jobs."""
        return Results(self.path / "results.jsonl", self.jobs.numbers(), self.jobs.asked)

    def finish(self, parquet: bool) -> None:
        """Writes the tables, and marks the batch as finished."""
        write_csv(self.results, self.path / "results.csv")
        if parquet:
            write_parquet(self.results, self.path / "results.parquet")
        self._header = {**self._header, "finished": now()}
        write_header(self.path / "batch.json", self._header)

    def close(self) -> None:
        self._resources.close()
        if self._header.get("finished") and not self._stock.failed:
            for suffix in ("", "-wal", "-shm"):
                (self.path / f"journal.sqlite3{suffix}").unlink(missing_ok=True)

    def __enter__(self) -> BatchFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _forget_recorded(self) -> None:
        """Removes readings whose answers are recorded: a process was killed between the two."""
        ids = {number: id for id, number in self.jobs.numbers().items()}
        for reading in self.journal.list(limit=None):
            if (ids.get(int(str(reading.document.get("job")))), reading.question) in self._stock.answered:
                self.journal.delete(reading.id)


@dataclass(slots=True)
class _Stock:
    """The questions that have a record."""

    answered: set[Key] = field(default_factory=set)
    failed: set[Key] = field(default_factory=set)

    @classmethod
    def of(cls, records: Path, retry_failed: bool) -> _Stock:
        """Of a file, which may end in half a line. `retry_failed`: failures are removed from it."""
        stock = cls()

        def keep(record: dict[str, Any]) -> bool:
            if retry_failed and record["error"] is not None:
                return False
            stock.add(record)
            return True

        if records.exists():
            mend(records, VERSION, keep)
        return stock

    def add(self, record: Mapping[str, Any]) -> None:
        """Counts a record."""
        (self.answered if record["error"] is None else self.failed).add(key_of(record))

    def __contains__(self, key: Key) -> bool:
        return key in self.answered or key in self.failed


def _as_begun(settings: Mapping[str, Any], begun: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of each form, to compare with those that the batch was begun with."""
    return {
        form: as_begun(one, begun.get(form, one), one.get("model"), one.get("base_url")) for form, one in settings.items()
    }


def _header(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        whole = values["schema"] == _SCHEMA and values["version"] == VERSION and values["batch"]
        if whole and all(one["identity"] for one in values["settings"].values()):
            return dict(values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file} is not the file of a batch ({error}): choose another folder") from error
    raise ConfigError(f"{file} is of another version of memagent: choose another folder")
