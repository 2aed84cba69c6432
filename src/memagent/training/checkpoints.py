"""Checkpoints of a run: folders that transformers opens, each with what an exact resume needs beside.

    RUN/checkpoints/000120/     config.json, model.safetensors, tokenizer, memagent.toml, trainer.pt
    RUN/last, RUN/best          links to two of them; the others are deleted

A checkpoint is written beside its place and moved there, a link is replaced in one step: a killed process leaves the old
state or the new one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError

from memagent.errors import OutputError, TrainingError

_STATE = "trainer.pt"


def verl_step(run: Path) -> int | None:
    """The batch of the last checkpoint of a run on verl (RUN/checkpoints/global_step_N); None if there is none.

    Raises TrainingError if verl's note of it says nothing, or names one that is not there.
    """
    note = run / "checkpoints" / "latest_checkpointed_iteration.txt"
    if not note.is_file():
        return None
    step = note.read_text().strip()
    if not step.isdigit() or not verl_shards(run, int(step)).is_dir():
        found = sorted(path.name for path in note.parent.glob("global_step_*"))
        raise TrainingError(
            f"{note} says {step!r}, and there is no such checkpoint: write the number of a complete one into it"
            f" (there are: {', '.join(found) or 'none'})"
        )
    return int(step)


def verl_shards(run: Path, step: int) -> Path:
    """Where verl keeps the learners' shards of a checkpoint."""
    return run / "checkpoints" / f"global_step_{step}" / "actor"


@contextmanager
def writing_model(folder: Path, partial: Path) -> Iterator[None]:
    """Removes `partial` and raises OutputError, naming `folder`, when weights cannot be written."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:  # torch and safetensors have their own for a full disk
        shutil.rmtree(partial, ignore_errors=True)
        raise OutputError(f"{folder}: cannot be written: {error}") from error


class Checkpoints:
    """The checkpoints of the run in `run`."""

    def __init__(self, run: Path) -> None:
        self.run = run

    def exist(self) -> bool:
        return (self.run / "last").is_symlink()

    def save(self, step: int, write: Callable[[Path], None], state: dict[str, Any], *, best: bool = False) -> Path:
        """Writes the checkpoint of `step`: `write` puts the model into a folder, `state` goes beside it.

        Raises OutputError if it cannot be written, for example to a full disk; earlier checkpoints stay.
        """
        folder = self.run / "checkpoints" / f"{step:06d}"
        temporary = folder.with_suffix(".tmp")
        with writing_model(folder, temporary):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            write(temporary)
            torch.save(state, temporary / _STATE)
            self._put(temporary, folder)
            if best or self._leads("best", _former(folder)):
                self._link("best", folder)
            self._link("last", folder)  # last: from then on the state counts
        self._tidy()
        return folder

    def adopt(self, other: Checkpoints) -> None:
        """Takes over the last checkpoint of another run, so that this one goes on from it. It has not scored anything yet:
        the scores of the other, whose best weights are not here, do not count. Raises as `save` does, and TrainingError if
        there is none."""
        source, state = other.folder("last"), other.load("last")
        folder = self.run / "checkpoints" / source.stem
        temporary = folder.with_suffix(".tmp")
        with writing_model(folder, temporary):
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.copytree(source, temporary, ignore=shutil.ignore_patterns(_STATE))
            torch.save(state | {"scored": None}, temporary / _STATE)
            self._put(temporary, folder)
            self._link("last", folder)

    def folder(self, name: Literal["last", "best"] = "last") -> Path:
        """The folder of a checkpoint. Raises TrainingError if there is none."""
        link = self.run / name
        if name == "best" and not link.is_symlink() and self.exist():
            raise TrainingError(f"{self.run} has no best checkpoint, because nothing was validated: use its last one")
        if not (link / _STATE).is_file():
            raise TrainingError(
                f"{self.run} holds no checkpoint {name!r}: it is not a run, or it stopped before its first checkpoint"
            )
        return link.resolve()

    def load(self, name: Literal["last", "best"] = "last") -> dict[str, Any]:
        """The state saved with a checkpoint. Raises TrainingError that says what is missing."""
        folder = self.folder(name)
        try:
            state: dict[str, Any] = torch.load(folder / _STATE, weights_only=True, map_location="cpu")
        except Exception as error:  # torch raises several unrelated classes for a damaged file
            raise TrainingError(f"{folder / _STATE}: cannot be read as a checkpoint: {error}") from error
        return state

    def _put(self, written: Path, folder: Path) -> None:
        """Moves a checkpoint that was written to its place, once it is on disk. One may be there, of a run that was killed
        after it and resumed before it: links to it lead to a copy of it meanwhile."""
        _flush_all(written)
        if leading := [name for name in ("best", "last") if self._leads(name, folder)]:
            former = _former(folder)
            if not (self._leads("best", former) or self._leads("last", former)):
                shutil.rmtree(former, ignore_errors=True)
                shutil.copytree(folder, former, copy_function=_linked)
                _flush_all(former)
            for name in leading:
                self._link(name, former)
        if folder.exists():
            shutil.rmtree(folder)
        written.replace(folder)
        _flush(folder.parent)

    def _leads(self, name: str, folder: Path) -> bool:
        return (self.run / name).is_symlink() and (self.run / name).resolve() == folder.resolve()

    def _link(self, name: str, folder: Path) -> None:
        temporary = self.run / f"{name}.tmp"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(folder.relative_to(self.run), target_is_directory=True)
        temporary.replace(self.run / name)

    def _tidy(self) -> None:
        kept = {(self.run / name).resolve() for name in ("last", "best")}
        for folder in (self.run / "checkpoints").iterdir():
            if folder.resolve() not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def _former(folder: Path) -> Path:
    """Where a copy of a checkpoint is while another takes its place."""
    return folder.with_suffix(".former")


def _linked(source: str, target: str) -> None:
    """Copies a file as a second name of it, where the file system has such."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _flush_all(folder: Path) -> None:
    for path in folder.iterdir():
        _flush(path)
    _flush(folder)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
