"""The interface of the journal."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from memagent.differences import change, flat
from memagent.errors import JournalError
from memagent.home import data_folder
from memagent.journal.database import connect, empty_log, explained, transaction
from memagent.journal.owners import Owner
from memagent.journal.redaction import redact, strip_urls
from memagent.journal.rows import INSERT_TURN, find_cut, leave_cuts, turn_entry, turn_row, use_cuts
from memagent.journal.values import (
    JSON,
    Cut,
    ReadingRecord,
    Status,
    TurnEntry,
    dump,
    dump_line,
    pack,
    unpack,
)

EXPORT_VERSION = 2
PROTOCOL = 2  # the version of turns that this memagent writes and can resume
_PAGE = 64  # turns fetched at a time: a long reading streams, and no read lock is held between pages
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: sorts like the number, no i, l, o, u
_SELECT_READINGS = """
    SELECT readings.*, last.number AS last, max(touched, coalesce(last.stored, 0)) AS updated
    FROM readings LEFT JOIN turns AS last ON last.reading = readings.key
        AND last.number = (SELECT max(number) FROM turns WHERE reading = readings.key)
"""


def default_path() -> Path:
    """`journal.sqlite3` in the user's data folder, which MEMAGENT_HOME overrides."""
    return data_folder() / "journal.sqlite3"


class Journal:
    """An open journal. May be used from several threads; not across a fork. Open it with `Journal.open`.

    Every method raises JournalError, with the file and the way out in the message, and then has changed nothing.
    Reading ids may be given to `claim`, `check` and everything that only looks or deletes by any unique beginning, with
    or without "r-"; `append`, `finish` and `fail` take the full id that `start` or `claim` returned.
    """

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path = path
        self._db = db
        self._owner = Owner.current()
        self._me = self._owner.dumps()
        self._has_held = False
        self._under_way = set[str]()
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: str | Path | None = None, *, wait: float = 30.0) -> Journal:
        """Opens the journal at `path` (None: `default_path()`), and creates it if missing: folders 0700, file 0600.

        `wait` is how long, in seconds, a locked file is waited for. Raises JournalError where the file cannot be written,
        is damaged, belongs to another program or to a newer memagent.
        """
        path = Path(path).absolute() if path is not None else default_path().absolute()
        return cls(path, connect(path, wait))

    def close(self) -> None:
        """Releases the readings held here, so that they can be resumed at once, and closes the file."""
        if os.getpid() != self._owner.pid:
            return  # after a fork, the parent closes the file
        with self._lock:
            if self._has_held:
                # If the file can no longer be written, it is closed anyway. Others notice when the process ends.
                with contextlib.suppress(JournalError), self._write() as db:
                    db.execute("UPDATE readings SET owner = NULL WHERE owner = ?", [self._me])
            self._db.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # Writing

    def start(
        self,
        *,
        question: str,
        settings: Mapping[str, JSON],
        document: Mapping[str, JSON],
        plan_digest: str,
        planned: int | None = None,
        cuts: Iterable[Cut] = (),
    ) -> str:
        """Records a new reading, held by this journal, and returns its id: r- and twelve characters that sort by time.

        `planned` is the number of turns expected. `cuts` are kept as long as some reading uses them. Raises JournalError
        for a setting that looks like a secret; URLs lose their user:password@ and key-like parameters.
        """
        texts = (
            question,
            dump(redact(settings, "settings"), "settings"),
            dump(redact(document, "document"), "document"),
            plan_digest,
        )
        now = time.time()
        self._has_held = True
        with self._write() as db:
            id = _new_id(now)
            while db.execute("SELECT 1 FROM readings WHERE id = ?", [id]).fetchone():
                id = _new_id(now)
            db.execute(
                "INSERT INTO readings (id, status, question, settings, document, plan_digest, planned, created, touched,"
                " owner, protocol) VALUES (?, 'running', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [id, *map(pack, texts), planned, now, now, self._me, PROTOCOL],
            )
            use_cuts(db, self._held(db, id), cuts)
        return id

    def append(self, id: str, entry: TurnEntry) -> None:
        """Records a finished turn and flushes it to disk. See `append_many`."""
        self.append_many([(id, entry)])

    def append_many(self, entries: Iterable[tuple[str, TurnEntry]]) -> None:
        """Records finished turns of any readings held here in one transaction: all on disk when this returns, or none.

        Raises JournalError where a reading is not held by this journal (any more), or a turn is not its reading's next or
        is there already.
        """
        # Encode first, so that invalid values are refused before the file is locked.
        rows = [(id, entry, turn_row(entry)) for id, entry in entries]
        if not rows:
            return
        now = time.time()
        with self._write() as db:
            for id, entry, row in rows:
                key = self._held(db, id)
                self._check_next(db, id, key, entry)
                db.execute(INSERT_TURN, [key, now, *row])

    def finish(self, id: str, answer: str, seconds: float) -> None:
        """Records the answer of a reading held here and its seconds, and closes the reading."""
        self._end(id, "answered", answer=answer, seconds=seconds)

    def fail(self, id: str, reason: str) -> None:
        """Records the failure of a reading held here. It keeps its turns and can be claimed again."""
        self._end(id, "failed", reason=strip_urls(reason))

    def verified(self, id: str, verdicts: Sequence[Mapping[str, JSON]]) -> None:
        """Records what verification of an answered reading came to, one object for each of its questions."""
        text = pack(dump(list(verdicts), "the verdicts"))
        with self._write() as db:
            row = self._row(id)
            if row["status"] != "answered":
                raise JournalError(f"reading {row['id']} is {row['status']}: only an answer can be verified")
            db.execute("UPDATE readings SET verdicts = ? WHERE key = ?", [text, row["key"]])

    def extend(
        self,
        id: str,
        *,
        document: Mapping[str, JSON],
        plan_digest: str,
        planned: int | None,
        keep: int,
        base: Mapping[str, JSON],
        cuts: Iterable[Cut] = (),
    ) -> None:
        """Goes on with a reading in the document as it is now, with its first `keep` turns, held by this journal.

        Answer, verdicts and the turns after those go, all in one transaction. `base` is what the kept turns came to, up to
        one with a state, which saves going through them again. Raises JournalError if another live owner holds the reading.
        """
        summary = pack(dump(base, "what the kept turns came to"))
        text = pack(dump(redact(document, "document"), "document"))
        self._has_held = True
        with self._write() as db:
            row = self._row(id)
            _check_protocol(row)
            self._check_free(row)
            db.execute("DELETE FROM turns WHERE reading = ? AND number >= ?", [row["key"], keep])
            db.execute(
                "UPDATE readings SET status = 'running', reason = NULL, answer = NULL, seconds = NULL, verdicts = NULL,"
                " document = ?, base = ?, plan_digest = ?, planned = ?, owner = ?, touched = ? WHERE key = ?",
                [text, summary, plan_digest, planned, self._me, time.time(), row["key"]],
            )
            use_cuts(db, row["key"], cuts)

    def cut(self, document: str, way: str) -> bytes | None:
        """The chunks of a document that some reading left, cut in this way, as JSON; None if there are none."""
        with self._use() as db:
            return find_cut(db, document, way)

    def claim(self, id: str, *, force: bool = False, cuts: Iterable[Cut] | None = None) -> ReadingRecord:
        """Takes over a reading to resume it, and returns its record. From now on, it uses these `cuts`, if there are any.

        Raises JournalError if it is answered already, if another live owner holds it, or if it is under way. `force` takes
        it all the same; the owner before is then refused at its next append, so that even this cannot mix two writers'
        turns.
        """
        self._has_held = True
        with self._write() as db:
            row = self._row(id)
            _check_protocol(row)
            if row["status"] == "answered":
                raise JournalError(f"reading {row['id']} is already answered: show it, or start a new one")
            if not force:
                self._check_free(row)
            db.execute(
                "UPDATE readings SET status = 'running', reason = NULL, owner = ?, touched = ? WHERE key = ?",
                [self._me, time.time(), row["key"]],
            )
            if cuts is not None:
                use_cuts(db, row["key"], cuts)
            return self._record(self._row(row["id"]))

    def relocate(self, id: str, settings: Mapping[str, JSON], paths: Sequence[str] | None = None) -> None:
        """Notes the settings of a reading with where the model is served now, and where its document lies now (None: where
        it was). All else is as `check` has seen it."""
        with self._write() as db:
            row = self._row(id)
            document = json.loads(unpack(row["document"])) | ({} if paths is None else {"paths": list(paths)})
            texts = [dump(redact(document, "document"), "document"), dump(redact(settings, "settings"), "settings")]
            db.execute("UPDATE readings SET document = ?, settings = ? WHERE key = ?", [*map(pack, texts), row["key"]])

    @contextlib.contextmanager
    def under_way(self, ids: Iterable[str]) -> Iterator[None]:
        """Readings that turns are asked for in this block: meanwhile, they cannot be claimed or extended here either.

        Raises JournalError for one that is under way already.
        """
        taken = set(ids)
        with self._use():
            for id in sorted(taken & self._under_way):
                self._check_free(self._row(id))
            self._under_way |= taken
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= taken

    def delete(self, id: str) -> None:
        """Removes a reading and its turns; their place in the file is overwritten with zeros. What is kept `beside` the
        journal for a document that no reading is of any more is removed, too.

        Raises JournalError if another live owner holds it. While another process reads the journal, traces may stay in
        the -wal file beside it until the last one has closed it.
        """
        with self._write() as db:
            row = self._row(id)
            owner = self._live_owner(row)
            if owner and owner != self._owner:
                raise JournalError(f"reading {row['id']} is in use by {owner}: stop it before you delete the reading")
            leave_cuts(db, row["key"])
            db.execute("DELETE FROM readings WHERE key = ?", [row["key"]])
        with self._use() as db:
            empty_log(db)
            read = {self.beside(row["document"]) for row in db.execute("SELECT DISTINCT document FROM cuts")}
        for folder in set(self._beside.glob("[0-9a-f]" * 64)) - read:  # nothing that somebody else put there
            shutil.rmtree(folder, ignore_errors=True)  # it may be another process that removes it just now

    # Looking

    @property
    def _beside(self) -> Path:
        return self.path.with_name(f"{self.path.name}.indexes")

    def beside(self, document: str) -> Path:
        """A folder for the indexes of a document, given its digest. It exists if something was put there."""
        return self._beside / hashlib.sha256(document.encode()).hexdigest()

    def show(self, id: str) -> ReadingRecord:
        """A reading without its turns."""
        with self._use():
            return self._record(self._row(id))

    def resumable(self, id: str) -> ReadingRecord:
        """As `show`. Raises JournalError for a reading of an older memagent, which can be shown but not resumed."""
        with self._use():
            row = self._row(id)
            _check_protocol(row)
            return self._record(row)

    def base(self, id: str) -> dict[str, Any] | None:
        """What the turns that an extension kept came to, as it was given to `extend`; None for other readings."""
        with self._use():
            row = self._row(id)
            return None if row["base"] is None else cast(dict[str, Any], json.loads(unpack(row["base"])))

    def check(self, id: str, *, settings: Mapping[str, JSON], document: Mapping[str, JSON], plan_digest: str) -> None:
        """Checks that a reading can be resumed with these settings and this document.

        Raises JournalError naming each property that differs, as old value → new value.
        """
        record = self.show(id)
        check_text(record, document.get("digest"))
        old = {**flat("settings", record.settings), **flat("document", record.document)}
        new = {**flat("settings", redact(settings, "settings")), **flat("document", redact(document, "document"))}
        changes = [
            change(name, old, new)
            for name in dict.fromkeys([*old, *new])
            if old.get(name, "") != new.get(name, "")  # what an older memagent did not know, it did not say
        ]
        if changes:
            raise JournalError(
                f"reading {record.id} has other settings: {'; '.join(changes)}."
                " Resume it with the same settings, or start a new reading"
            )
        if plan_digest != record.plan_digest:
            served = "the server that counted its tokens and " if record.settings.get("base_url") else ""
            raise JournalError(
                f"reading {record.id} has another plan ({record.plan_digest[:12]} → {plan_digest[:12]}) although its"
                f" settings and document are the same: resume it with {served}the memagent that began it, or start a new"
                " reading"
            )

    def turns(self, id: str, start: int = 0) -> Iterator[TurnEntry]:
        """The current turns from number `start` on, streamed, so that memory use does not grow with the reading."""
        with self._use():
            row = self._row(id)
        return self._stream(row, start)

    def export(self, id: str) -> Iterator[str]:
        """A reading as JSON lines without line ends: a header, then one line for each turn."""
        with self._use():
            row = self._row(id)
            record = self._record(row)
        yield dump_line({"schema": "memagent.reading", "version": EXPORT_VERSION, **asdict(record)}, "the reading")
        for entry in self._stream(row, 0):
            yield dump_line(asdict(entry), f"turn {entry.id}")

    def list(self, limit: int | None = 20, status: Status | None = None) -> tuple[ReadingRecord, ...]:
        """The newest `limit` readings (None: all), newest first; with `status`, only those."""
        stored = "running" if status == "interrupted" else status
        query = f"{_SELECT_READINGS} WHERE ? IS NULL OR status = ? ORDER BY key DESC"
        found: list[ReadingRecord] = []
        with self._use() as db, contextlib.closing(db.execute(query, [stored, stored])) as rows:
            for row in rows:
                if limit is not None and len(found) >= limit:
                    break
                record = self._record(row)
                if status in (None, record.status):
                    found.append(record)
        return tuple(found)

    # Inside

    @contextlib.contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        if os.getpid() != self._owner.pid:
            raise JournalError(f"journal {self.path} was opened before a fork: open it again in the new process")
        with self._lock, explained(self.path):
            yield self._db

    @contextlib.contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._use() as db, transaction(db):
            yield db

    def _end(self, id: str, status: Status, **columns: str | float) -> None:
        values = [pack(value) if isinstance(value, str) else value for value in columns.values()]
        names = "".join(f", {name} = ?" for name in columns)
        with self._write() as db:
            key = self._held(db, id)
            db.execute(
                f"UPDATE readings SET status = ?, owner = NULL, touched = ?{names} WHERE key = ?",
                [status, time.time(), *values, key],
            )

    def _held(self, db: sqlite3.Connection, id: str) -> int:
        """The key of a running reading that this journal holds; inside a transaction, so that it stays so."""
        row = db.execute("SELECT key, status, owner FROM readings WHERE id = ?", [pack(id)]).fetchone()
        if row is None:
            raise JournalError(f"journal {self.path} does not contain the reading {id}, or no longer: start it again")
        if row["status"] != "running":
            raise JournalError(f"reading {id} is already {row['status']} and accepts no more turns")
        if row["owner"] != self._me:
            holder = f"was taken over by {Owner.loads(row['owner'])}" if row["owner"] else "is not held by anyone"
            raise JournalError(f"reading {id} {holder}: claim it before writing to it")
        return int(row["key"])

    @staticmethod
    def _check_next(db: sqlite3.Connection, id: str, key: int, entry: TurnEntry) -> None:
        last = db.execute("SELECT max(number) FROM turns WHERE reading = ?", [key]).fetchone()[0]
        expected = 0 if last is None else last + 1
        if entry.number != expected:
            raise JournalError(
                f"reading {id} has {expected} turns, so the next is turn {expected}, not {entry.number}:"
                " resume it from its last turn"
            )
        if db.execute("SELECT 1 FROM turns WHERE reading = ? AND id = ?", [key, entry.id]).fetchone():
            raise JournalError(f"reading {id} already has a turn {entry.id!r}: resume it from its last turn")

    def _row(self, given: str) -> sqlite3.Row:
        """The one reading whose id begins with `given`."""
        beginning = "r-" + given.strip().lower().removeprefix("r-")
        rows = self._db.execute(
            f"{_SELECT_READINGS} WHERE readings.id >= ? AND readings.id < ? ORDER BY readings.id LIMIT 6",
            [pack(beginning), pack(beginning + "~")],
        ).fetchall()
        if not rows or beginning == "r-":
            raise JournalError(f"journal {self.path} has no reading {given!r}: list the readings to see their ids")
        if len(rows) > 1:
            ids = ", ".join(row["id"] for row in rows[:5]) + (", …" if len(rows) > 5 else "")
            raise JournalError(f"{given!r} is the beginning of several ids ({ids}): use a longer part of the id")
        return cast(sqlite3.Row, rows[0])

    def _check_free(self, row: sqlite3.Row) -> None:
        """Raises JournalError if another live owner holds the reading, or it is under way here."""
        owner = self._live_owner(row)
        if owner and (owner != self._owner or row["id"] in self._under_way):
            raise JournalError(
                f"reading {row['id']} is in use by {owner}, active {time.time() - row['updated']:.0f} s ago:"
                " wait for it, or stop it"
            )

    def _live_owner(self, row: sqlite3.Row) -> Owner | None:
        owner = Owner.loads(row["owner"]) if row["owner"] else None
        return owner if owner and owner.alive(time.time() - row["updated"]) else None

    def _record(self, row: sqlite3.Row) -> ReadingRecord:
        owner = self._live_owner(row)
        status = "interrupted" if row["status"] == "running" and not owner else row["status"]
        plain = ("id", "planned", "created", "updated", "seconds", "protocol")
        values: dict[str, Any] = {name: row[name] for name in plain}
        for name in ("question", "plan_digest", "answer", "reason"):
            values[name] = None if row[name] is None else unpack(row[name])
        for name in ("settings", "document"):
            values[name] = json.loads(unpack(row[name]))
        return ReadingRecord(
            **values,
            verdicts=None if row["verdicts"] is None else tuple(json.loads(unpack(row["verdicts"]))),
            status=cast(Status, status),
            turns=0 if row["last"] is None else row["last"] + 1,
            owner=str(owner or ""),
        )

    def _stream(self, reading: sqlite3.Row, start: int) -> Iterator[TurnEntry]:
        end = 0 if reading["last"] is None else reading["last"] + 1
        for first in range(max(start, 0), end, _PAGE):
            last = min(first + _PAGE, end)
            with self._use() as db:
                rows = db.execute(
                    "SELECT * FROM turns WHERE reading = ? AND number >= ? AND number < ? ORDER BY number",
                    [reading["key"], first, last],
                ).fetchall()
                entries = [turn_entry(row) for row in rows]
            if len(rows) != last - first:
                raise JournalError(f"turns of the reading {reading['id']} disappeared during the query: was it deleted?")
            yield from entries


def check_text(record: ReadingRecord, digest: JSON) -> None:
    """Raises JournalError if the text with that digest is not the one that was read."""
    if record.document.get("digest") == digest:
        return
    paths = [str(path) for path in cast(Sequence[JSON], record.document.get("paths") or ["the document"])]
    what = paths[0] + (f" or one of {len(paths) - 1} more" if len(paths) > 1 else "")
    raise JournalError(
        f"reading {record.id}: {what} has changed since it was read: ask again, or, if text was only added at the end,"
        f" memagent extend {record.id}"
    )


def _new_id(now: float) -> str:
    """Milliseconds (45 bits, until the year 3084) and 15 random bits, five bits to a character."""
    number = int(now * 1000) << 15 | secrets.randbits(15)
    return "r-" + "".join(_DIGITS[number >> shift & 31] for shift in range(55, -1, -5))


def _check_protocol(row: sqlite3.Row) -> None:
    if row["protocol"] != PROTOCOL:
        raise JournalError(
            f"reading {row['id']} was started by an older memagent, and this one cannot resume it. You can show and export"
            " it; start a new reading, or resume it with the memagent that started it"
        )
