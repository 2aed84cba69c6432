"""Turns as rows of their table, and the tables of cuts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Container, Iterable
from dataclasses import fields

from memagent.journal.values import Cut, TurnEntry, dump, dump_folded, load_folded, pack, unpack

_TURN = tuple(item.name for item in fields(TurnEntry))
INSERT_TURN = f"INSERT INTO turns (reading, stored, {', '.join(_TURN)}) VALUES (?, ?{', ?' * len(_TURN)})"


def turn_row(entry: TurnEntry) -> list[str | bytes | int | None]:
    what = f"of turn {entry.id}"
    return [
        entry.number,
        entry.id,
        entry.kind,
        entry.outcome,
        dump(entry.spans, f"the spans {what}"),
        pack(entry.memory),
        dump_folded(entry.completion, entry.memory, f"the completion {what}"),
        None if entry.state is None else dump_folded(entry.state, entry.memory, f"the state {what}"),
        dump(entry.splits, f"the splits {what}"),
    ]


def turn_entry(row: sqlite3.Row) -> TurnEntry:
    memory = unpack(row["memory"])
    return TurnEntry(
        **{name: row[name] for name in ("number", "id", "kind", "outcome")},
        spans=tuple((start, end) for start, end in json.loads(row["spans"])),
        memory=memory,
        completion=load_folded(row["completion"], memory),
        state=None if row["state"] is None else load_folded(row["state"], memory),
        splits=tuple(json.loads(row["splits"])),
    )


def find_cut(db: sqlite3.Connection, document: str, way: str) -> bytes | None:
    """The chunks of a document that was cut in this way, as JSON."""
    row = db.execute("SELECT chunks FROM cuts WHERE document = ? AND way = ?", [document, way]).fetchone()
    return None if row is None else bytes(row["chunks"])


def use_cuts(db: sqlite3.Connection, reading: int, cuts: Iterable[Cut]) -> None:
    """From now on, a reading uses these cuts, and no other. Those without chunks, and not there, are left out."""
    used = list[int]()
    for cut in cuts:
        names = [cut.document, cut.way]
        if cut.chunks is not None:
            db.execute(
                "INSERT INTO cuts (document, way, chunks) VALUES (?, ?, ?)"
                " ON CONFLICT (document, way) DO UPDATE SET chunks = excluded.chunks",
                [*names, cut.chunks],
            )
        used += [row["key"] for row in db.execute("SELECT key FROM cuts WHERE document = ? AND way = ?", names)]
    db.executemany("INSERT OR IGNORE INTO cuts_used (reading, cut) VALUES (?, ?)", [(reading, key) for key in used])
    leave_cuts(db, reading, but=used)


def leave_cuts(db: sqlite3.Connection, reading: int, but: Container[int] = ()) -> None:
    """From now on, a reading uses none of its cuts, `but` for some. Those that no other reading uses are removed."""
    keys = [row["cut"] for row in db.execute("SELECT cut FROM cuts_used WHERE reading = ?", [reading])]
    for key in (key for key in keys if key not in but):
        db.execute("DELETE FROM cuts_used WHERE reading = ? AND cut = ?", [reading, key])
        db.execute("DELETE FROM cuts WHERE key = ? AND NOT EXISTS (SELECT 1 FROM cuts_used WHERE cut = ?)", [key, key])
