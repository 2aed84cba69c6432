"""The SQLite file: creates, recognises and migrates it, and explains errors of SQLite."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from memagent.errors import JournalError, JournalFileError
from memagent.files import create_private

APPLICATION_ID = 0x4D454D41  # "MEMA": distinguishes a journal from other SQLite files

# Entry n brings a file from schema n to schema n + 1. Entries are never changed once they are on the main branch,
# only added: files of each schema are on someone's disk.
#
# `readings` does not store the number of turns or the time of the last one: both follow from the last turn. An append
# therefore inserts one row and rewrites nothing, however long question and settings are.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE readings (
            key INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            status TEXT NOT NULL CHECK (status IN ('running', 'answered', 'failed')),
            question TEXT NOT NULL,
            settings TEXT NOT NULL,
            document TEXT NOT NULL,
            plan_digest TEXT NOT NULL,
            planned INTEGER,
            created REAL NOT NULL,
            touched REAL NOT NULL,
            owner TEXT,
            answer TEXT,
            reason TEXT,
            seconds REAL
        )""",
        """CREATE TABLE turns (
            reading INTEGER NOT NULL REFERENCES readings (key) ON DELETE CASCADE,
            number INTEGER NOT NULL,
            kind TEXT NOT NULL,
            outcome TEXT NOT NULL,
            span_start INTEGER,
            span_end INTEGER,
            memory TEXT NOT NULL,
            completion TEXT NOT NULL,
            state TEXT NOT NULL,
            stored REAL NOT NULL,
            PRIMARY KEY (reading, number)
        )""",
    ),
    # Turns have an id and any number of spans, and some have a state. Older readings keep their turns for display.
    (
        "ALTER TABLE readings ADD COLUMN protocol INTEGER NOT NULL DEFAULT 1",
        """CREATE TABLE turns_by_id (
            reading INTEGER NOT NULL REFERENCES readings (key) ON DELETE CASCADE,
            number INTEGER NOT NULL,
            id TEXT NOT NULL,
            kind TEXT NOT NULL,
            outcome TEXT NOT NULL,
            spans TEXT NOT NULL,
            memory TEXT NOT NULL,
            completion TEXT NOT NULL,
            state TEXT,
            stored REAL NOT NULL,
            PRIMARY KEY (reading, number),
            UNIQUE (reading, id)
        )""",
        """INSERT INTO turns_by_id
            SELECT reading, number, 'turn-' || (number + 1), kind, outcome,
                CASE WHEN span_start IS NULL THEN '[]' ELSE '[[' || span_start || ',' || span_end || ']]' END,
                memory, completion, NULL, stored
            FROM turns""",
        "DROP TABLE turns",
        "ALTER TABLE turns_by_id RENAME TO turns",
    ),
    # Turns that were split are named, because replaying completions does not lead to them.
    ("ALTER TABLE turns ADD COLUMN splits TEXT NOT NULL DEFAULT '[]'",),
    # What verification came to, one object for each question; and what the turns before an extension came to.
    ("ALTER TABLE readings ADD COLUMN verdicts TEXT", "ALTER TABLE readings ADD COLUMN base TEXT"),
    # The chunks of documents as they were kept at first: one reading owned them.
    (
        """CREATE TABLE cuts (
            document TEXT NOT NULL,
            chunk_limit INTEGER NOT NULL,
            tokenizer TEXT NOT NULL,
            reading INTEGER NOT NULL REFERENCES readings (key) ON DELETE CASCADE,
            chunks TEXT NOT NULL,
            PRIMARY KEY (document, chunk_limit, tokenizer)
        )""",
        "CREATE INDEX cuts_of ON cuts (reading)",
    ),
    # The chunks of documents, which would take long to be cut again, as long as there is a reading that was cut so. Some
    # files of schema 5 have these tables already. What they hold can be cut again, so that both kinds begin anew.
    (
        "DROP TABLE IF EXISTS cuts_used",
        "DROP TABLE cuts",
        """CREATE TABLE cuts (
            key INTEGER PRIMARY KEY,
            document TEXT NOT NULL,
            way TEXT NOT NULL,
            chunks BLOB NOT NULL,
            UNIQUE (document, way)
        )""",
        """CREATE TABLE cuts_used (
            reading INTEGER NOT NULL REFERENCES readings (key) ON DELETE CASCADE,
            cut INTEGER NOT NULL REFERENCES cuts (key),
            PRIMARY KEY (reading, cut)
        )""",
        "CREATE INDEX readings_of_cut ON cuts_used (cut)",
    ),
)

# fullfsync is needed only on macOS, where a plain fsync does not reach the disk.
_PRAGMAS = ("synchronous=FULL", "fullfsync=ON", "checkpoint_fullfsync=ON", "secure_delete=ON", "foreign_keys=ON")

_LOCAL = "put the journal on a local disk (set MEMAGENT_HOME)"
_EXPLAINED = {
    "SQLITE_BUSY": "is locked by another process; try again when it is done",
    "SQLITE_READONLY": "cannot be written; make the file and its folder writable, or set MEMAGENT_HOME to another folder",
    "SQLITE_PERM": "may not be opened; make the file and its folder writable, or set MEMAGENT_HOME to another folder",
    "SQLITE_FULL": "has no room on its disk; every turn finished before is kept: free some, and `memagent resume ID` goes"
    " on (`memagent readings list` shows the id); a batch goes on with its own command",
    "SQLITE_CORRUPT": "is damaged; move it aside, rescue what is left with `sqlite3 FILE .recover`, and start a new one",
    "SQLITE_NOTADB": "is not a journal; move the file away or give another path",
    "SQLITE_CANTOPEN": "cannot be opened; give a file in a writable folder, or set MEMAGENT_HOME to another folder",
    "SQLITE_IOERR": "could not be read or written; check that its disk has room and works, and if it is a network file"
    f" system, {_LOCAL}",
    "SQLITE_PROTOCOL": f"cannot be locked; if it is on a network file system, {_LOCAL}",
}


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns errors of SQLite and the system into a JournalFileError that names the file and a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        words = next((text for start, text in _EXPLAINED.items() if name.startswith(start)), "failed")
        raise JournalFileError(f"journal {path} {words} ({error})") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise JournalFileError(f"journal {path} {_EXPLAINED['SQLITE_CORRUPT']} ({error})") from error
    except OSError as error:
        raise JournalFileError(
            f"journal {path} cannot be opened ({error.strerror or error}); set MEMAGENT_HOME to another folder"
        ) from error


def connect(path: Path, wait: float) -> sqlite3.Connection:
    """An open journal file of the current schema, created if missing: folders 0700, file 0600. Waits `wait` s for locks.

    Raises JournalError, leaving the file as it was, where it is something else, damaged or from a newer memagent.
    """
    with explained(path):
        create_private(path)  # SQLite gives its side files the mode of the main one
        db = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
        with contextlib.ExitStack() as undo:
            undo.callback(db.close)
            db.row_factory = sqlite3.Row
            _version(db, path)  # before any write, so that another program's file stays untouched
            _use_wal(db, path, wait)
            for pragma in _PRAGMAS:
                db.execute(f"PRAGMA {pragma}")
            _migrate(db, path)
            undo.pop_all()
    return db


@contextlib.contextmanager
def transaction(db: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """A transaction. IMMEDIATE takes the write lock first, so checks inside remain valid for its writes."""
    try:
        db.execute(f"BEGIN {kind}")
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:  # SQLite has already rolled back after some errors, such as a full disk
            db.execute("ROLLBACK")


def empty_log(db: sqlite3.Connection) -> None:
    """Empties the write-ahead log, which holds what was deleted. While another process reads the database it is left as it
    is, without waiting, for the next time."""
    (wait,) = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute("PRAGMA busy_timeout=0")
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        db.execute(f"PRAGMA busy_timeout={wait}")


def _version(db: sqlite3.Connection, path: Path) -> int:
    """The schema version of the file, 0 for an empty one. Call it in a transaction or before any."""
    with contextlib.nullcontext() if db.in_transaction else transaction(db, "DEFERRED"):
        application, version, tables = (
            db.execute(query).fetchone()[0]
            for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
    if application != APPLICATION_ID and (application or version or tables):
        raise JournalError(f"journal {path} is an SQLite file of another program and was not changed; choose another path")
    if version > len(MIGRATIONS):
        raise JournalError(
            f"journal {path} was written by a newer memagent (schema {version}, this one supports {len(MIGRATIONS)}); "
            "upgrade memagent, or set MEMAGENT_HOME to another folder"
        )
    return int(version)


def _use_wal(db: sqlite3.Connection, path: Path, wait: float) -> None:
    deadline = time.monotonic() + wait
    while True:
        try:
            mode = db.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as error:  # the busy timeout does not cover a change of mode
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    if mode != "wal":
        raise JournalError(f"journal {path} is on a file system without shared memory (a network share?); {_LOCAL}")


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    if _version(db, path) == len(MIGRATIONS):
        return
    with transaction(db):
        for statements in MIGRATIONS[_version(db, path) :]:  # again: another process may have been first
            for statement in statements:
                db.execute(statement)
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={len(MIGRATIONS)}")
