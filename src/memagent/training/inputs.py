"""What a run reads: the files that its configuration names, by digest, and what its scores were measured on.

A resumed run makes the same batches only from the same files, and scores compare only where they are of the same samples.
The digest of a sample file covers the texts beside it that its samples are of. The model that a run starts from counts by
its weights: a resumed run takes its own from the checkpoint, but what is kept from the start it takes from there again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from memagent.errors import TrainingError
from memagent.files import atomic_file
from memagent.models.open import model_folder
from memagent.tasks.files import SampleFile

_NOTE = "inputs.json"
_START = "start: "
_OF_A_MODEL = ("config.json", "*.safetensors", "*.bin")


def digests(values: Any) -> dict[str, str]:
    """The SHA-256 of every file that a configuration, or a part of one, names as a path; folders are left out. Raises
    TaskError for a sample file that is none."""
    found = sorted((path, samples) for path, samples in set(_paths(values)) if path.is_file())
    return {str(path): SampleFile.open(path).sha256 if samples else _digest(path) for path, samples in found}


def measured_on(values: Any) -> str:
    """A name for what scores are measured on: equal for equal `values` (models of pydantic, in lists and dictionaries) and
    equal contents of the files that they name."""
    plain = json.dumps([values, digests(values)], sort_keys=True, default=_plain)
    return hashlib.sha256(plain.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Inputs:
    """The digests of what a run reads now, and of what it read before it was resumed. Those of the model that it started
    from, wherever that lies, are by the names of its files."""

    now: Mapping[str, str]
    before: Mapping[str, str]

    @classmethod
    def of(cls, run: Path, config: BaseModel, *, resumed: bool) -> Inputs:
        """Those of the run in a folder."""
        note, start = run / _NOTE, getattr(config, "start", None)
        before = json.loads(note.read_text(encoding="utf-8")) if resumed and note.is_file() else {}
        return cls(digests(config) | (_model_digests(model_folder(start)) if start else {}), before)

    @property
    def changed(self) -> list[str]:
        """The files with another content than before."""
        return [path for path, digest in self.now.items() if self.before.get(path, digest) != digest]

    def check_start(self, start: str) -> None:
        """Raises TrainingError if the model in the folder `start` is not the one of before."""
        now, before = (
            {name: digest for name, digest in files.items() if name.startswith(_START)} for files in (self.now, self.before)
        )
        if before and now != before:
            raise TrainingError(
                f"the model in {start} is not the one that the run began with, and its adapters or its reference"
                " (algorithm.kl) belong to that: put it back, or begin a new run"
            )

    def write(self, run: Path) -> None:
        """Notes them in inputs.json. Raises OutputError."""
        with atomic_file(run / _NOTE) as file:
            json.dump(self.now, file, indent=1)


def _model_digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of the configuration and the weights in a model folder, by the names of their files."""
    return {f"{_START}{path.name}": _digest(path) for name in _OF_A_MODEL for path in sorted(folder.glob(name))}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _paths(values: Any, samples: bool = False) -> Iterator[tuple[Path, bool]]:
    """The paths, each with whether it is that of a sample file."""
    if isinstance(values, Path):
        yield values, samples
    elif isinstance(values, BaseModel):
        for name, value in values:
            yield from _paths(value, name == "file")
    elif isinstance(values, dict):
        yield from _paths(list(values.values()))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _paths(value)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)
