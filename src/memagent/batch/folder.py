"""The folder of a batch.

    batch.json         what may not change when the command is repeated: jobs, settings, model
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

_SCHEMA = "memagent.batch"
_MAY_CHANGE = USUALLY_FREE | {"jobs.path", "batch"}


class BatchFolder:
    """An open batch. Open it with `BatchFolder.open`; close it, or use it as a context manager.

    `id` is the batch's own, for whatever is kept of it elsewhere.
    """

    def __init__(self, path: Path, jobs: JobFile, header: dict[str, Any], journal: Journal, stream: IO[bytes]) -> None:
        self.path = path
        self.jobs = jobs
        self.journal = journal
        self.done: set[Key] = set()
        self._failed = 0
        self._header = header
        self._stream = stream
        self._resources = ExitStack()

    @property
    def id(self) -> str:
        return str(self._header["batch"])

    @classmethod
    def open(cls, path: Path, jobs: JobFile, config: Mapping[str, Any], *, retry_failed: bool = False) -> BatchFolder:
        """Creates the folder, or goes on with the batch in it. `retry_failed`: failures are forgotten, and tried again.

        Raises ConfigError naming every setting that differs, a folder that is no batch, or one that another process is at.
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
                check_same(f"the batch in {path}", known, header, _MAY_CHANGE)
                header |= {"batch": known["batch"], "started": known.get("started"), "finished": None}
            elif any(not one.name.startswith("batch.json.") for one in path.iterdir()):
                raise ConfigError(f"{path} is not empty and does not contain a batch: choose another folder")
            write_header(file, header)
            with writing(records):
                stream = resources.enter_context(records.open("ab"))
            journal = resources.enter_context(Journal.open(path / "journal.sqlite3"))
            folder = cls(path, jobs, header, journal, stream)
            folder._take_stock(retry_failed)
            folder._resources = resources.pop_all()
        return folder

    def left(self) -> Iterator[tuple[Job, list[str]]]:
        """The jobs in order, with their questions that have no record yet; each is loaded when it is asked for."""
        for job in self.jobs:
            if left := [question for question in job.questions if (job.id, question) not in self.done]:
                yield job, left

    def write(self, record: Mapping[str, Any], reading: str | None) -> None:
        """Adds a record and flushes it to disk. Its `reading` leaves the journal, unless it failed and can be retried."""
        with writing(self.path / "results.jsonl"):
            self._stream.write(dump(record))
            self._stream.flush()
            os.fsync(self._stream.fileno())
        self.done.add(key_of(record))
        self._failed += record["error"] is not None
        if reading is not None and record["error"] is None:
            self.journal.delete(reading)

    @property
    def results(self) -> Results:
        """The records, in the order of the jobs."""
        return Results(self.path / "results.jsonl", self.jobs.numbers())

    def finish(self, parquet: bool) -> None:
        """Writes the tables, and marks the batch as finished."""
        write_csv(self.results, self.path / "results.csv")
        if parquet:
            write_parquet(self.results, self.path / "results.parquet")
        self._header = {**self._header, "finished": now()}
        write_header(self.path / "batch.json", self._header)

    def close(self) -> None:
        self._resources.close()
        if self._header.get("finished") and not self._failed:
            for suffix in ("", "-wal", "-shm"):
                (self.path / f"journal.sqlite3{suffix}").unlink(missing_ok=True)

    def __enter__(self) -> BatchFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _take_stock(self, retry_failed: bool) -> None:
        """What is done already. A process that was killed may have left half a line, or a reading that is recorded."""
        answered = set[Key]()

        def keep(record: dict[str, Any]) -> bool:
            failed = record["error"] is not None
            if failed and retry_failed:
                return False
            self.done.add(key_of(record))
            self._failed += failed
            if not failed:
                answered.add(key_of(record))
            return True

        mend(self.path / "results.jsonl", VERSION, keep)
        ids = {number: id for id, number in self.jobs.numbers().items()}
        for reading in self.journal.list(limit=None):
            number = reading.document.get("job")
            if (ids.get(int(str(number))), reading.question) in answered:
                self.journal.delete(reading.id)


def _header(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        if values["schema"] == _SCHEMA and values["version"] == VERSION and values["batch"]:
            return dict(values)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file} is not the file of a batch ({error}): choose another folder") from error
    raise ConfigError(f"{file} is of another version of memagent: choose another folder")
