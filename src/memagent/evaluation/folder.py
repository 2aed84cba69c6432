"""Writes a run folder: its configuration, its records, and the journal of unfinished readings.

    run.json           what is compared: settings, reader, sample file, versions, machine (a served model's first address)
    records.jsonl      one line for every finished reading, on disk before the next begins
    journal.sqlite3    readings under way, turn by turn; a killed run loses at most the turns that were being generated

A folder is one run: opening it again with other settings is refused, with the same ones it goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from memagent.errors import ConfigError
from memagent.evaluation.records import RECORD_VERSION, Record
from memagent.evaluation.runs import RUN_SCHEMA, RUN_VERSION, read_header
from memagent.files import locked
from memagent.folders import USUALLY_FREE, check_same, mend, now, write_header
from memagent.journal import Journal
from memagent.journal.redaction import redact
from memagent.settings import as_begun

# Values that may differ when a run is continued: where, when and with how many readings at once it runs.
_MAY_CHANGE = USUALLY_FREE | {"samples.path", "batch", "concurrency"}

Key = tuple[str, int]


class RunFolder:
    """An open run. Open it with `RunFolder.open`; close it, or use it as a context manager."""

    def __init__(self, path: Path, config: dict[str, Any], journal: Journal, stream: IO[bytes], done: set[Key]) -> None:
        self.path = path
        self.config = config
        self.journal = journal
        self.done = done
        self._stream = stream
        self._resources = ExitStack()
        self._under_way = self._unfinished()

    @classmethod
    def open(cls, path: Path, config: Mapping[str, Any], *, again: Iterable[str] = ()) -> RunFolder:
        """Creates the folder, or continues the run in it. Readings whose `error_kind` is in `again` are repeated.

        A served model may be at another address than before. Raises ConfigError naming every setting that differs, a folder
        that is no run, or one that another process is at.
        """
        config = {"schema": RUN_SCHEMA, "version": RUN_VERSION, **redact(config, "run")}
        file, records = path / "run.json", path / "records.jsonl"
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path} is a file: choose a folder for the run")
        if file.exists():
            known = read_header(path)
            config = _as_begun(config, known)
            check_same(f"the run in {path}", known, config, _MAY_CHANGE)
            config = {**config, "started": known.get("started"), "versions": known.get("versions"), "finished": None}
        elif path.exists() and any(not one.name.startswith("run.json.") for one in path.iterdir()):
            raise ConfigError(f"{path} is not empty and does not contain a run: choose another folder")
        with ExitStack() as resources:
            try:
                path.mkdir(parents=True, exist_ok=True)
                resources.enter_context(locked(path))
                write_header(file, config)
                done = _mend(records, frozenset(again)) if records.exists() else set()
                stream = resources.enter_context(records.open("ab"))
            except OSError as error:
                raise ConfigError(f"cannot write to the run folder {path}: {error.strerror or error}") from error
            journal = resources.enter_context(Journal.open(path / "journal.sqlite3"))
            folder = cls(path, config, journal, stream, done)
            folder._resources = resources.pop_all()
        return folder

    def write(self, record: Record, reading: str | None) -> None:
        """Adds a record, flushes it to disk, and removes its `reading` from the journal."""
        self._stream.write(json.dumps(record.to_json(), ensure_ascii=True, allow_nan=False).encode() + b"\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self.done.add(record.key)
        if reading is not None:
            self.journal.delete(reading)
            self._under_way.pop(record.key, None)

    def reading_of(self, key: Key) -> str | None:
        """The journal's id of a reading that was unfinished when the run stopped."""
        return self._under_way.get(key)

    def began(self, key: Key, reading: str) -> None:
        """Remembers the journal's reading of this sample."""
        self._under_way[key] = reading

    def finish(self) -> None:
        """Marks the run as finished."""
        self.config = {**self.config, "finished": now()}
        write_header(self.path / "run.json", self.config)

    def close(self) -> None:
        self._resources.close()
        if self.config.get("finished"):
            for suffix in ("", "-wal", "-shm"):
                (self.path / f"journal.sqlite3{suffix}").unlink(missing_ok=True)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _unfinished(self) -> dict[Key, str]:
        found: dict[Key, str] = {}
        for record in self.journal.list(limit=None):
            key = (str(record.document.get("sample")), int(str(record.document.get("attempt", 0))))
            if key in self.done:
                self.journal.delete(record.id)  # the process was killed after writing its record
            else:
                found[key] = record.id
        return found


def _as_begun(config: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration, to compare with that of a run that was begun."""
    settings = config["settings"]
    begun = as_begun(settings, known.get("settings", {}), settings["model"], settings["base_url"])
    return {**config, "model": begun["identity"], "settings": begun}


def _mend(file: Path, again: frozenset[str]) -> set[Key]:
    """The keys of the records to keep. Removes an incomplete last line, and records of readings to repeat."""
    done: set[Key] = set()

    def keep(values: dict[str, Any]) -> bool:
        key, kind = (values["sample"], values["attempt"]), values["error_kind"]
        if kind is not None and kind in again:
            return False
        done.add(key)
        return True

    mend(file, RECORD_VERSION, keep)
    return done
