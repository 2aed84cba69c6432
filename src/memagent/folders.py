"""Folders that a repeated command goes on with: a header that has to stay the same, and a file of records, one a line."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from memagent.differences import change, flat
from memagent.errors import ConfigError
from memagent.files import atomic_file

_PACKAGES = ("memagent", "torch", "transformers", "tokenizers", "openai", "bm25s", "numpy")
_CHANGES = 8  # that are named
# Values that may differ when a run is continued: where and when it runs.
USUALLY_FREE = frozenset({"versions", "machine", "command", "started", "finished"})


def describe_machine() -> dict[str, Any]:
    """Versions, machine and command, for a header."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    machine = {"system": platform.system(), "architecture": platform.machine(), "cores": os.cpu_count()}
    command = shlex.join([Path(sys.argv[0]).name.replace("__main__.py", "memagent"), *sys.argv[1:]])
    return {"versions": versions, "machine": machine, "command": command, "started": now(), "finished": None}


def now() -> str:
    """The time in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def check_same(what: str, old: Mapping[str, Any], new: Mapping[str, Any], free: Collection[str] = USUALLY_FREE) -> None:
    """Raises ConfigError naming every value that differs, but those in `free` and below them. Both are headers of `what`:
    "the run in FOLDER", for example."""
    before, now = flat("", old), flat("", json.loads(json.dumps(new)))
    wrote, writes = old.get("versions", {}).get("memagent"), new.get("versions", {}).get("memagent")
    changes = [f"memagent: {wrote} → {writes}"] if wrote != writes else []
    for name in dict.fromkeys([*before, *now]):
        if any(name == one or name.startswith(f"{one}.") for one in free):
            continue
        if before.get(name) != now.get(name):
            changes.append(change(name, before, now))
    if changes:
        if len(changes) > _CHANGES:
            changes[_CHANGES:] = [f"and {len(changes) - _CHANGES} more"]
        raise ConfigError(f"{what} has other settings: {'; '.join(changes)}. Use the same settings, or another folder")


def write_header(file: Path, values: Mapping[str, Any]) -> None:
    """Writes a header, whole or not at all."""
    with atomic_file(file) as stream:
        stream.write(json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def mend(file: Path, version: int, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Removes an incomplete last line, and the records that `keep` refuses. Memory use does not grow with the file.

    Raises ConfigError, with file and line, for a record of another version, or one that `keep` cannot read.
    """
    refused = set[int]()
    whole = 0
    for number, line in _whole_lines(file):
        try:
            values = json.loads(line)
            wrote, kept = values["version"], keep(values)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{file}, line {number}: not a record: {error}") from error
        if wrote != version:
            raise ConfigError(f"{file}, line {number}: the record has version {wrote}, this memagent writes {version}")
        whole += len(line)
        if not kept:
            refused.add(number)
    if not refused:
        os.truncate(file, whole)
        return
    with atomic_file(file) as copy:
        for number, line in _whole_lines(file):
            if number not in refused:
                copy.write(line.decode())


def _whole_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    with file.open("rb") as stream:
        yield from ((number, line) for number, line in enumerate(stream, 1) if line.endswith(b"\n"))
