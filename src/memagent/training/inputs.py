"""What a run reads: the files that its configuration names, by digest, and what its scores were measured on.

A resumed run makes the same batches only from the same files, and scores compare only where they are of the same samples.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from memagent.files import atomic_file

_NOTE = "inputs.json"


def digests(values: Any) -> dict[str, str]:
    """The SHA-256 of every file that a configuration, or a part of one, names as a path; folders are left out."""
    found = {}
    for path in sorted(set(_paths(values))):
        if path.is_file():
            with path.open("rb") as file:
                found[str(path)] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def measured_on(values: Any) -> str:
    """A name for what scores are measured on: equal for equal `values` (models of pydantic, in lists and dictionaries) and
    equal contents of the files that they name."""
    plain = json.dumps([values, digests(values)], sort_keys=True, default=_plain)
    return hashlib.sha256(plain.encode()).hexdigest()


def changed_files(folder: Path, config: BaseModel, *, resumed: bool) -> list[str]:
    """The files with another content than the run in `folder` last read; it notes what it reads now, in inputs.json.
    Raises OutputError."""
    note, now = folder / _NOTE, digests(config)
    before = json.loads(note.read_text(encoding="utf-8")) if resumed and note.is_file() else {}
    with atomic_file(note) as file:
        json.dump(now, file, indent=1)
    return [path for path, digest in now.items() if before.get(path, digest) != digest]


def _paths(values: Any) -> Iterator[Path]:
    if isinstance(values, Path):
        yield values
    elif isinstance(values, BaseModel):
        yield from _paths(dict(values))
    elif isinstance(values, dict):
        yield from _paths(list(values.values()))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _paths(value)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)
