"""`memagent readings`: the readings in the journal."""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from memagent.cli.console import boundary, encodable, err, note, print_json, write
from memagent.cli.show import print_verdict
from memagent.core.readers.kept import KeptReader
from memagent.errors import ConfigError
from memagent.files import atomic_file, check_replaceable
from memagent.journal import Journal, ReadingRecord, TurnEntry
from memagent.stored import verdicts

app = typer.Typer(help="Show, export or delete readings in the journal.", no_args_is_help=True)
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a reading, or its beginning.")]
_PAGE, _EXPORTED = '<meta name="generator" content="memagent', '"memagent.reading"'
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_readings(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The maximum number of readings.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List readings, newest first."""
    with boundary(), Journal.open() as journal:
        records = journal.list(limit=limit + 1)
        more, records = len(records) > limit, records[:limit]
        if as_json:
            print_json([_summary(record) for record in records])
            return
        for record in records:
            when = datetime.fromtimestamp(record.created).strftime("%Y-%m-%d %H:%M")
            ended = record.status == "answered"
            turns = f"{record.turns} turns" if ended else f"{record.turns} of about {record.planned or '?'} turns"
            write((record.id, "bold"), (" · ".join(("", when, record.status, turns, _begin(_read(record)))), "dim"))
            came = _begin(record.answer or record.reason or "")
            write(f"  {_begin(_asked(record))}", (f" → {came}" if came else "", "green" if record.answer else ""))
        if more:
            note(f"the newest {limit}; --limit shows more")


@app.command("show")
def show(
    reading: Id,
    as_json: AsJson = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a page instead (-: to standard output): the answer beside the document with its quotes.",
        ),
    ] = None,
) -> None:
    """Show a reading: the memory after each turn, as a diff."""
    with boundary(), Journal.open() as journal:
        if html is not None and as_json:
            raise ConfigError("--html writes a page and --json prints JSON: give one of them")
        record = journal.show(reading)
        if html is not None:
            _write_page(journal, record, html)
            return
        if as_json:
            turns = [_turn(entry) for entry in journal.turns(record.id)]
            print_json({**_summary(record), "settings": record.settings, "turns": turns})
            return
        write((record.question, "bold"))
        write(f"{record.id} · {record.status} · {record.turns} turn{'s'[: record.turns != 1]}")
        options = record.settings.get("reader_options")
        began = options.get("memory") if isinstance(options, Mapping) else None  # a follow-up is handed one
        _print_turns(journal.turns(record.id), str(began or ""))
        write((record.answer, "bold green") if record.answer else record.reason or "no answer yet")
        for verdict in verdicts(record):
            print_verdict(verdict)


@app.command("export")
def export(
    reading: Id,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write (default: standard output). An export is overwritten."),
    ] = None,
) -> None:
    """Write a reading as JSON lines: a header, then one line for each turn."""
    with boundary(), Journal.open() as journal:
        lines = journal.export(journal.show(reading).id)
        if output is None:
            sys.stdout.writelines(_encodable(line) + "\n" for line in lines)
        else:
            _check_writable(output, "an exported reading", _EXPORTED)
            with atomic_file(output) as file:
                file.writelines(line + "\n" for line in lines)


@app.command("delete")
def delete(readings: Annotated[list[str], typer.Argument(metavar="ID...")]) -> None:
    """Delete readings and all their turns."""
    with boundary(), Journal.open() as journal:
        for reading in readings:
            record = journal.show(reading)
            journal.delete(record.id)
            err.print(f"deleted {record.id}")
            if rest := [one.id for one in journal.list(None) if _source(one) == record.id]:
                shown = ", ".join(rest[:3]) + (", …" if len(rest) > 3 else "")
                note(f"from its memory, {len(rest)} more answered ({shown}): where its lines stand is no longer known")


def _write_page(journal: Journal, record: ReadingRecord, path: Path) -> None:
    from memagent.page import page_text, write_page  # only here: it loads a template engine and the documents' readers

    if str(path) == "-":
        page, text = page_text(journal, record)
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    else:
        _check_other(journal, record, path)
        _check_writable(path, "a page of memagent", _PAGE)
        page = write_page(journal, record, path)
    if page.note:
        note(page.note)
    if str(path) != "-":
        note(f"{path}: the page of reading {record.id}")


def _check_other(journal: Journal, record: ReadingRecord, path: Path) -> None:
    """Raises ConfigError if a page would replace the journal, or a file that the reading's document was read from."""
    real = os.path.realpath(path)
    if real in {os.path.realpath(f"{journal.path}{end}") for end in ("", "-wal", "-shm", "-journal")}:
        raise ConfigError(f"{path} belongs to the journal: write the page to another file")
    given, files = record.document.get("paths"), record.document.get("files")
    names = [str(one.get("name")) for one in files if isinstance(one, Mapping)] if isinstance(files, list) else []
    for source in given if isinstance(given, list) else ():
        if _part_of(str(source), names, real):
            raise ConfigError(f"{path} is a file of the document: write the page to another file")


def _part_of(source: str, names: Iterable[str], path: str) -> bool:
    """Whether a file is `source`, or lies in that folder or glob, and is there and was read: under one of the `names`."""
    if os.path.realpath(source) == path:
        return True
    base = Path(os.path.realpath(re.split(r"[^/\\]*[*?\[]", source, maxsplit=1)[0]))
    if not Path(path).is_file() or base not in Path(path).parents:
        return False
    rest = Path(path).relative_to(base).parts
    return any(Path(name).parts[-len(rest) :] == rest for name in names)


def _check_writable(path: Path, what: str, sign: str) -> None:
    """Raises ConfigError for a folder that is not there, which is probably a typing error, and OutputError for what is no
    file, or is there and is not `what` we write, which has `sign` in its beginning."""
    if not path.parent.is_dir():
        raise ConfigError(f"cannot write {path}: the folder {path.parent} does not exist. Create it, or choose another")
    check_replaceable(path, what, [sign])


def _encodable(line: str) -> str:
    return line if encodable(line) else json.dumps(json.loads(line), separators=(",", ":"))


def _print_turns(turns: Iterable[TurnEntry], memory: str) -> None:
    """The memory after every turn as a diff from the one that the reading began with; one line for consecutive turns
    without a change."""
    quiet, last = 0, -1
    for entry in turns:
        last = entry.number
        if entry.memory == memory and entry.outcome in ("kept", "unchanged", "skipped"):
            quiet += 1
            continue
        _print_quiet(entry.number, quiet)
        where = f"characters {entry.spans[0][0]:,}–{entry.spans[-1][1]:,}" if entry.spans else entry.kind
        write((f"turn {entry.number + 1} · {where} · {entry.outcome}", "dim"))
        if entry.memory != memory:
            _print_diff(memory, entry.memory)
        memory, quiet = entry.memory, 0
    _print_quiet(last + 1, quiet)


def _print_quiet(before: int, count: int) -> None:
    if count:
        turns = f"turn {before}" if count == 1 else f"turns {before - count + 1}–{before}"
        write((f"{turns} · memory unchanged", "dim"))


def _read(record: ReadingRecord) -> str:
    """The name of what was read: a file, and how many more there were."""
    files = record.document.get("files")
    names = [str(one.get("name")) for one in files if isinstance(one, Mapping)] if isinstance(files, list) else []
    return f"{names[0]} and {len(names) - 1:,} more" if len(names) > 1 else names[0] if names else "a text"


def _source(record: ReadingRecord) -> str:
    """The id of the reading from whose memory a follow-up was asked, or ""."""
    options = record.settings.get("reader_options")
    asked = record.settings.get("reader") == KeptReader.name and isinstance(options, Mapping)
    return str(options["reading"]) if asked and isinstance(options, Mapping) else ""


def _asked(record: ReadingRecord) -> str:
    """The question of a reading, or its questions."""
    together = record.settings.get("together")
    return " / ".join(map(str, together)) if isinstance(together, list) and together else record.question


def _begin(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:59] + "…"


def _summary(record: ReadingRecord) -> dict[str, Any]:
    values = asdict(record)
    values.pop("settings")
    return {"reading": values.pop("id"), **values}


def _turn(entry: TurnEntry) -> dict[str, Any]:
    values = asdict(entry)
    values.pop("state")
    return values


def _print_diff(old: str, new: str) -> None:
    for line in difflib.ndiff(old.splitlines(), new.splitlines()):
        style = {"+": "green", "-": "red", " ": "dim"}.get(line[0])
        if style is not None:
            write("  ", (line, style))
