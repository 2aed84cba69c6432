"""The log of a run: metrics and timing in files, the same on the console, in TensorBoard and in Weights & Biases.

metrics.jsonl   {"step": 40, "train": {"loss": 0.5, "row": 0.9}}, or "validation" in place of "train"
timing.jsonl    {"step": 40, "seconds": {"rollout": 12.5}, "tokens": {"rollout": 50000}}

No clock is ever in metrics.jsonl, so two equal runs write the same bytes; what depends on the machine is in timing.jsonl.
JSON has no number that is not finite: those are the strings "nan", "inf" and "-inf". Only what the caller passes is
written, never the environment.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import re
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memagent.errors import ConfigError, MissingExtraError, OutputError, TrainingError
from memagent.files import atomic_file, writing
from memagent.training.rows import KINDS

# What the console shows of a training step, in this order, and under which name. The rest is in the file.
_SHOWN = {
    "reward": "reward",
    "kept": "kept",
    "loss": "loss",
    **{kind: kind for kind in KINDS},
    "row": "row",
    "kl": "kl",
    "entropy": "entropy",
    "grad_norm": "grad",
    "memory_tokens": "memory",
    "retention": "retention",
}


class RunLog:
    """Where the metrics of a run go: metrics.jsonl and timing.jsonl in the run's folder, the console, TensorBoard and
    Weights & Biases.

    A step that is reported belongs to the log once the call returns: the lines are flushed. `step` is the step of the
    checkpoint the run goes on from: what the files say about later steps, and a torn last line, is dropped, for those steps
    are done again. So a trainer writes the metrics of a step before its checkpoint. A run that reports a step 0 starts anew
    with step=-1, which keeps nothing.
    """

    def __init__(
        self,
        folder: Path,
        *,
        step: int = 0,
        console: Console | None = None,
        tensorboard: bool = False,
        wandb: str = "",
        config: Mapping[str, Any] | None = None,
        source: str = "",
    ) -> None:
        """`console` None is silent; `wandb` is the name of a project, "" for none; `config` is shown there. `source` is
        the TOML that the configuration came from: it is kept as config.toml, and a resumed run is configured by it.

        Raises MissingExtraError without the package `tensorboard`, ConfigError without `wandb`, OutputError when a file
        cannot be written, and TrainingError when one holds something else or Weights & Biases cannot start the run.
        """
        # Packages first: a run that cannot start leaves the files as they are.
        summary_writer = _import_summary_writer() if tensorboard else None
        library = _import_wandb() if wandb else None
        self._screen = _Screen(console) if console is not None else None
        self._mirrors: list[_Mirror] = []
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            self._metrics = stack.enter_context(_Lines(folder / "metrics.jsonl", step))
            self._timing = stack.enter_context(_Lines(folder / "timing.jsonl", step))
            if summary_writer is not None:
                self._mirrors.append(stack.enter_context(_TensorBoard(summary_writer, folder / "tensorboard", step)))
            if library is not None:
                self._mirrors.append(stack.enter_context(_WeightsAndBiases(library, wandb, folder, config)))
            if source:  # last: a run that cannot begin leaves the old one
                self._keep_former(folder / "config.toml", step, source)
                with atomic_file(folder / "config.toml") as file:
                    file.write(source)
            self._stack = stack.pop_all()

    def _keep_former(self, file: Path, step: int, source: str) -> None:
        """Keeps the configuration that the first `step` steps were made with, if a run goes on with another one."""
        if step < 0 or not file.is_file() or (former := file.read_text(encoding="utf-8")) == source:
            return
        kept = file.with_name(f"config-to-{step:06d}.toml")
        with atomic_file(kept) as stream:
            stream.write(former)
        self.say(f"the configuration has changed at step {step}; the former one is in {kept}")

    def metrics(self, step: int, part: Literal["train", "validation"], values: Mapping[str, Any]) -> None:
        """The values of a step: {name: number} or {name: {key: number}}. TypeError for anything else, OutputError when
        they cannot be written."""
        scalars = _flat(part, values)
        self._metrics.write({"step": step, part: values})
        for mirror in self._mirrors:
            mirror.write(step, scalars)
        if self._screen is not None:
            if part == "train":
                self._screen.train(step, values)
            else:
                self._screen.validation(step, values)

    def timing(self, step: int, seconds: Mapping[str, float], tokens: Mapping[str, int]) -> None:
        """Wall-clock seconds and tokens of each phase since the last report. TensorBoard and Weights & Biases get the
        seconds and, for phases that have both, tokens per second. Raises as `metrics` does."""
        scalars = _flat("seconds", seconds)
        _flat("tokens", tokens)
        speed = {name: tokens[name] / seconds[name] for name in seconds if name in tokens and seconds[name] > 0}
        self._timing.write({"step": step, "seconds": seconds, "tokens": tokens})
        scalars |= {f"speed/{name}_tokens_per_second": value for name, value in speed.items()}
        for mirror in self._mirrors:
            mirror.write(step, scalars)
        if self._screen is not None:
            self._screen.timing(seconds, speed)

    def ended(self, step: int, why: str) -> None:
        """Notes that the run ends before the last step that it plans. Raises OutputError."""
        self._metrics.write({"step": step, "ended": why})
        self.say(why)

    def say(self, text: str) -> None:
        """A line on the console, about the run as a whole."""
        if self._screen is not None:
            self._screen.say(text)

    def close(self) -> None:
        """Ends the log; a second call does nothing. Raises OutputError when the last events cannot be written."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)


class _Lines:
    """A file of JSON lines, each of which is there in full once `write` returns."""

    def __init__(self, path: Path, step: int) -> None:
        self._path = path
        with writing(path):
            _forget_after(path, step)
            self._file = path.open("ab", buffering=0)

    def write(self, record: dict[str, Any]) -> None:
        """Appends a line. If the disk is full, removes the part that was written, if it can."""
        line = memoryview((json.dumps(_finite(record), allow_nan=False) + "\n").encode())
        with writing(self._path):
            length = os.fstat(self._file.fileno()).st_size
            try:
                while line:
                    line = line[self._file.write(line) :]
            except OSError:
                with suppress(OSError):
                    self._file.truncate(length)
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class _Mirror(Protocol):
    """Something beside the files that shows the numbers."""

    def write(self, step: int, scalars: Mapping[str, float]) -> None: ...


class _TensorBoard:
    """Event files in a folder. Points after `step` that an earlier process wrote are hidden. A thread of TensorBoard writes
    them: a full disk raises in the same call or in the next, in `close` at the latest."""

    def __init__(self, summary_writer: Any, folder: Path, step: int) -> None:
        self._folder = folder
        with writing(folder):
            # TensorBoard hides the purge step itself too, and the points of the checkpoint's step are not made again.
            self._writer = summary_writer(str(folder), purge_step=step + 1)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        with writing(self._folder):
            for tag, value in scalars.items():
                self._writer.add_scalar(tag, value, step)
            self._writer.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with writing(self._folder):
                self._writer.close()
        except OutputError:
            if kind is None:  # else the first error is the one to hear about
                raise


class _WeightsAndBiases:
    """A run of wandb. One that goes on from a checkpoint is the same run there, which ignores steps that it has already."""

    def __init__(self, library: Any, project: str, folder: Path, config: Mapping[str, Any] | None) -> None:
        name = _wandb_id(folder)
        try:
            self._run = library.init(
                project=project,
                dir=str(folder),
                config=None if config is None else dict(config),
                resume="allow",
                id=name,
            )
        except Exception as error:  # its own classes for login, network and settings have no common public root
            raise TrainingError(
                f"wandb cannot start a run of {project}: {error} (WANDB_MODE=offline needs no server)"
            ) from error

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._run.log(dict(scalars), step=step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._run.finish(exit_code=0 if kind is None else 1)


class _Screen:
    """The console: a line per training step, a line per timing, a table per validation."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def train(self, step: int, values: Mapping[str, Any]) -> None:
        line = Text(f"{step:6d}")
        for key, label in _SHOWN.items():
            value = values.get(key)
            if isinstance(value, int | float):
                groups = values.get("groups") if key == "kept" else None
                shown = _number(value) + (f"/{_number(groups)}" if isinstance(groups, int | float) else "")
                line.append(f"  {label} ", "dim").append(f"{shown:>7s}")
        self._console.print(line, soft_wrap=True)

    def timing(self, seconds: Mapping[str, float], speed: Mapping[str, float]) -> None:
        line = Text(" " * 6, "dim")
        for name, value in seconds.items():
            line.append(f"  {self._clean(name)} {value:.1f} s")
            if name in speed:
                line.append(f", {speed[name]:,.0f} tok/s")
        self._console.print(line, soft_wrap=True)

    def validation(self, step: int, values: Mapping[str, Any]) -> None:
        """Rows are names and columns are keys; a name with one number has it under "value"."""
        rows = {name: value if isinstance(value, Mapping) else {"value": value} for name, value in values.items()}
        keys = list(dict.fromkeys(key for row in rows.values() for key in row))
        table = Table(box=None, pad_edge=False)
        table.add_column(Text(f"{step:6d}  validation"), overflow="fold")
        for key in keys:
            table.add_column(Text(self._clean(key)), justify="right", overflow="fold")
        for name, row in rows.items():
            cells = [_number(row[key]) if key in row else "" for key in keys]
            table.add_row(Text(" " * 8 + self._clean(name)), *map(Text, cells))
        if not self._console.is_terminal:  # a file has no width to keep to
            wide = self._console.options.update(width=10_000)
            table.width = self._console.measure(table, options=wide).maximum
        self._console.print(table, crop=False)

    def _clean(self, name: str) -> str:
        """A name in one line without what would act on the terminal or what its encoding lacks."""
        shown = "".join(character if character.isprintable() else "\ufffd" for character in name)
        return shown.encode(self._console.encoding, "backslashreplace").decode(self._console.encoding)


def _forget_after(path: Path, step: int) -> None:
    """Drops the lines of later steps and a torn last line; the file is the old one or the new one at any time."""
    if not path.exists():
        return
    with path.open("rb") as file:
        lines = list(file)
    kept = [
        line for at, line in enumerate(lines, 1) if line.endswith(b"\n") and _step_of(line, f"{path}, line {at}") <= step
    ]
    if len(kept) < len(lines):
        with atomic_file(path) as file:
            file.writelines(line.decode() for line in kept)


def _step_of(line: bytes, where: str) -> int:
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{where}: not a line of a run's log: repair it, or move the file away") from error
    if not isinstance(step, int):
        raise TrainingError(f"{where}: the step is {step!r}, not a whole number: repair it, or move the file away")
    return step


def _flat(part: str, values: Mapping[str, Any]) -> dict[str, float]:
    """{"part/name": number, "part/name/key": number}. TypeError for what is not a number."""
    result: dict[str, float] = {}
    for name, value in values.items():
        leaves = value.items() if isinstance(value, Mapping) else [("", value)]
        for key, leaf in leaves:
            tag = f"{part}/{name}/{key}" if key else f"{part}/{name}"
            if not isinstance(leaf, int | float):
                raise TypeError(f"{tag} is {type(leaf).__name__}, not a number of Python")
            result[tag] = leaf
    return result


def _finite(value: Any) -> Any:
    """The value with strings for the numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-3:  # and what is not a number comes out as nan or inf
        return f"{value:.1e}"
    return f"{value:,.1f}" if size >= 100 else f"{value:.4f}"


def _wandb_id(folder: Path) -> str:
    """The run's name at wandb: made once from where the folder is, kept in it, so that it may move."""
    path = folder / "wandb-id"
    with writing(path):
        name = path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""
        if not re.fullmatch("[0-9A-Za-z_-]{1,64}", name):
            name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
            with atomic_file(path) as file:
                file.write(f"{name}\n")
    return name


def _import_summary_writer() -> Any:
    try:
        return importlib.import_module("torch.utils.tensorboard").SummaryWriter
    except ImportError as error:
        raise MissingExtraError("logging for TensorBoard", "train") from error


def _import_wandb() -> Any:
    try:
        library: Any = importlib.import_module("wandb")
    except ImportError as error:
        raise ConfigError("logging to Weights & Biases needs a package that is not installed: pip install wandb") from error
    if not hasattr(library, "init"):
        # Its own folder of runs, `wandb`, in the working directory imports as an empty package.
        raise ConfigError("the folder ./wandb hides the package: pip install wandb, or start from another folder")
    return library
