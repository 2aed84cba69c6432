"""Turns and cuts as rows of their tables."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import fields

from memagent.journal.values import Cut, TurnEntry, dump, dump_folded, load_folded, pack, unpack

_TURN = tuple(item.name for item in fields(TurnEntry))
INSERT_TURN = f"INSERT INTO turns (reading, stored, {', '.join(_TURN)}) VALUES (?, ?{', ?' * len(_TURN)})"
INSERT_CUT = "INSERT OR REPLACE INTO cuts (reading, document, chunk_limit, tokenizer, chunks) VALUES (?, ?, ?, ?, ?)"
SELECT_CUT = "SELECT chunks FROM cuts WHERE document = ? AND chunk_limit = ? AND tokenizer = ?"


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


def cut_row(cut: Cut) -> list[str | int]:
    """The values of a cut, without its reading."""
    return [cut.document, cut.limit, cut.tokenizer, dump(cut.chunks, "the chunks")]
