"""Jobs, uploaded files and spent tokens on disk, so that they survive a restart. Turns are in the journal."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, BinaryIO

from memagent.files import create_private
from memagent.journal.database import empty_log
from memagent.server.values import Job, JobStatus, StoredFile

_PRAGMAS = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA secure_delete=ON")
_TABLES = (
    """CREATE TABLE IF NOT EXISTS jobs (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, created REAL NOT NULL, question TEXT NOT NULL, documents TEXT NOT NULL,
        options TEXT NOT NULL, parent TEXT, status TEXT NOT NULL, reading TEXT, ended REAL, result TEXT, error TEXT,
        kind TEXT
    )""",
    "CREATE INDEX IF NOT EXISTS jobs_of ON jobs (owner, created)",
    """CREATE TABLE IF NOT EXISTS files (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, bytes INTEGER NOT NULL, created REAL NOT NULL
    )""",
    "CREATE TABLE IF NOT EXISTS spent (owner TEXT, day TEXT, tokens INTEGER NOT NULL, PRIMARY KEY (owner, day))",
    "CREATE TABLE IF NOT EXISTS counted (job TEXT PRIMARY KEY, tokens INTEGER NOT NULL)",  # of these, what a job used
)
_LATER = {"request": "TEXT NOT NULL DEFAULT '{}'", "once": "TEXT", "digest": "TEXT"}  # further columns of jobs
_SPEND = """INSERT INTO spent VALUES (?, ?, ?)
    ON CONFLICT (owner, day) DO UPDATE SET tokens = tokens + excluded.tokens"""
_COUNT = "INSERT INTO counted VALUES (?, ?) ON CONFLICT (job) DO UPDATE SET tokens = excluded.tokens"
_LOST = """SELECT * FROM files WHERE id LIKE 'part-%'
    AND id NOT IN (SELECT value FROM jobs, json_each(jobs.documents))"""
_ENDING = re.compile(r"(?:\.[A-Za-z0-9]{1,8})?\.[A-Za-z0-9]{1,8}$")
_ID = re.compile(r"(?:file|part)-[0-9a-f]{24}")
_AS_JSON = ("documents", "options", "request", "result")
_PROBE = 1 << 18  # bytes that there must be room for
_COLUMNS = tuple(item.name for item in fields(Job))


def new_id(kind: str) -> str:
    """An id that cannot be guessed."""
    return f"{kind}-{secrets.token_hex(12)}"


def is_kept(document: str) -> bool:
    """Whether a document of a job is one that was sent to us, and so is named by its id; others are paths."""
    return _ID.fullmatch(document) is not None


class Store:
    """The folder of a service. May be used from several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / "service.sqlite3"
        create_private(path)
        path.chmod(0o600)  # a copy that was put back may have another mode
        (folder / "files").mkdir(exist_ok=True, mode=0o700)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
        self._db.row_factory = sqlite3.Row
        self._lock = threading.RLock()
        for statement in (*_PRAGMAS, *_TABLES):
            self._db.execute(statement)
        known = {column["name"] for column in self._db.execute("PRAGMA table_info(jobs)")}
        for name, kind in _LATER.items():  # an earlier version did not have them
            if name not in known:
                self._db.execute(f"ALTER TABLE jobs ADD COLUMN {name} {kind}")
        self._db.execute("CREATE UNIQUE INDEX IF NOT EXISTS jobs_once ON jobs (owner, once) WHERE once IS NOT NULL")

    def close(self) -> None:
        with self._lock:
            self._db.close()

    # Jobs

    def add(self, job: Job) -> None:
        """Writes a new job."""
        marks = ", ".join("?" * len(_COLUMNS))
        with self._use() as db:
            db.execute(f"INSERT INTO jobs ({', '.join(_COLUMNS)}) VALUES ({marks})", _row(job))

    def change(self, id: str, **values: Any) -> Job:
        """Replaces values of a job and returns it."""
        names = ", ".join(f"{name} = ?" for name in values)
        packed = [json.dumps(value) if name in _AS_JSON and value is not None else value for name, value in values.items()]
        with self._use() as db:
            db.execute(f"UPDATE jobs SET {names} WHERE id = ?", [*packed, id])
            return self._job(db.execute("SELECT * FROM jobs WHERE id = ?", [id]).fetchone())

    def job(self, id: str, owner: str) -> Job | None:
        """A job of this owner; None if there is none."""
        with self._use() as db:
            row = db.execute("SELECT * FROM jobs WHERE id = ? AND owner = ?", [id, owner]).fetchone()
        return self._job(row) if row else None

    def begun(self, job: Job) -> Job | None:
        """The job that its owner has asked for with the same `once`; None if there is none."""
        with self._use() as db:
            row = db.execute("SELECT * FROM jobs WHERE owner = ? AND once = ?", [job.owner, job.once]).fetchone()
        return self._job(row) if row else None

    def jobs(self, owner: str, limit: int, after: Job | None = None) -> list[Job]:
        """The newest jobs of an owner, newest first; or the newest of those that are older than `after`."""
        created, id = (after.created, after.id) if after is not None else (math.inf, "")
        query = "SELECT * FROM jobs WHERE owner = ? AND (created, id) < (?, ?) ORDER BY created DESC, id DESC LIMIT ?"
        with self._use() as db:
            rows = db.execute(query, [owner, created, id, limit]).fetchall()
        return [self._job(row) for row in rows]

    def unfinished(self) -> list[Job]:
        """Jobs that were waiting or under way, oldest first."""
        with self._use() as db:
            rows = db.execute("SELECT * FROM jobs WHERE status IN ('queued', 'running') ORDER BY created").fetchall()
        return [self._job(row) for row in rows]

    def ended_before(self, moment: float) -> list[Job]:
        """Jobs that were over before a moment, in seconds since 1970."""
        with self._use() as db:
            rows = db.execute("SELECT * FROM jobs WHERE ended < ?", [moment]).fetchall()
        return [self._job(row) for row in rows]

    def end(self, id: str, status: JobStatus, **values: Any) -> Job:
        """Closes a job with its result, or its error and the kind of that."""
        return self.change(id, status=status, ended=time.time(), **values)

    def remove(self, id: str) -> None:
        """Forgets a job."""
        self._erase(id, "DELETE FROM jobs WHERE id = ?", "DELETE FROM counted WHERE job = ?")

    # Files

    def keep(self, owner: str, name: str, source: BinaryIO, *, part: bool = False) -> StoredFile:
        """Copies a document into the folder. Its name on disk is its id: a name from outside is never a path. `part`: it
        came with a request, belongs to that, and is not listed."""
        id = new_id("part" if part else "file")
        path = self._path(id, name)
        partial = path.with_name(f"{path.name}.part")
        with ExitStack() as failed:
            failed.callback(partial.unlink, missing_ok=True)
            create_private(partial)
            with partial.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
                target.flush()
                os.fsync(target.fileno())
            partial.rename(path)
        kept = StoredFile(id=id, owner=owner, name=name, bytes=path.stat().st_size, created=time.time())
        with self._use() as db:
            db.execute("INSERT INTO files VALUES (:id, :owner, :name, :bytes, :created)", asdict(kept))
        return kept

    def file(self, id: str, owner: str) -> StoredFile | None:
        """A file of this owner; None if there is none."""
        with self._use() as db:
            row = db.execute("SELECT * FROM files WHERE id = ? AND owner = ?", [id, owner]).fetchone()
        return StoredFile(**dict(row)) if row else None

    def files(self, owner: str) -> list[StoredFile]:
        """The files that an owner uploaded, newest first."""
        query = "SELECT * FROM files WHERE owner = ? AND id LIKE 'file-%' ORDER BY created DESC"
        with self._use() as db:
            rows = db.execute(query, [owner]).fetchall()
        return [StoredFile(**dict(row)) for row in rows]

    def stored(self, owner: str) -> int:
        """The bytes of all documents of an owner, those that came with requests too."""
        with self._use() as db:
            (total,) = db.execute("SELECT coalesce(sum(bytes), 0) FROM files WHERE owner = ?", [owner]).fetchone()
        return int(total)

    def path(self, file: StoredFile) -> Path:
        """Where a file lies."""
        return self._path(file.id, file.name)

    def drop(self, file: StoredFile) -> None:
        """Deletes a file. Its entry goes last, so that a file is never there without one."""
        self.path(file).unlink(missing_ok=True)
        self._erase(file.id, "DELETE FROM files WHERE id = ?")

    def tidy(self) -> None:
        """Deletes what a service that was killed has left: parts of requests that belong to no job, and files without an
        entry. Nothing may be uploaded meanwhile."""
        with self._use() as db:
            lost = [StoredFile(**dict(row)) for row in db.execute(_LOST)]
        for file in lost:
            self.drop(file)
        with self._use() as db:
            known = {row["id"] for row in db.execute("SELECT id FROM files")}
        for path in (self.folder / "files").iterdir():
            if is_kept(id := path.name.partition(".")[0]) and id not in known:
                path.unlink(missing_ok=True)

    def _path(self, id: str, name: str) -> Path:
        ending = _ENDING.search(name)  # it says how to read the file
        return self.folder / "files" / (id + (ending[0].lower() if ending else ""))

    # Tokens

    def spend(self, job: Job, total: int) -> int:
        """Counts for today (UTC) what a job has used beyond what was counted before, and returns that. `total` is what it
        has used in all: so tokens are counted once, also if a service ends between a turn and this."""
        with self._use() as db, db:
            db.execute("BEGIN IMMEDIATE")
            before = db.execute("SELECT tokens FROM counted WHERE job = ?", [job.id]).fetchone()
            new = total - (before["tokens"] if before else 0)
            if new > 0:
                db.execute(_SPEND, [job.owner, _today(), new])
                db.execute(_COUNT, [job.id, total])
        return max(0, new)

    def check(self) -> None:
        """Raises OSError or sqlite3.Error if nothing can be written."""
        with tempfile.TemporaryFile(dir=self.folder) as probe:
            probe.write(bytes(_PROBE))
            probe.flush()
        with self._use() as db:
            db.execute(_SPEND, ["", _today(), 0])

    def spent(self, owner: str) -> int:
        """Tokens of today."""
        with self._use() as db:
            row = db.execute("SELECT tokens FROM spent WHERE owner = ? AND day = ?", [owner, _today()]).fetchone()
        return int(row["tokens"]) if row else 0

    def _erase(self, id: str, *statements: str) -> None:
        """Deletes rows of an id. SQLite overwrites them with zeros, and empties its write-ahead log, which has them too.
        While another process reads the database, traces may stay in that log."""
        with self._use() as db:
            for statement in statements:
                db.execute(statement, [id])
            empty_log(db)

    @contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            yield self._db

    @staticmethod
    def _job(row: sqlite3.Row) -> Job:
        values = {name: json.loads(row[name]) if name in _AS_JSON and row[name] else row[name] for name in _COLUMNS}
        return Job(**{**values, "documents": tuple(values["documents"])})


def _row(job: Job) -> list[Any]:
    values = asdict(job)
    return [
        json.dumps(values[name]) if name in _AS_JSON and values[name] is not None else values[name] for name in _COLUMNS
    ]


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())
