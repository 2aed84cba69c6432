"""`memagent train`: supervised warm start, Multi-Conv DAPO, and writing the result as a model folder."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from memagent.cli.console import boundary, err, plain
from memagent.errors import ConfigError, MissingExtraError, TrainingError

app = typer.Typer(help="Train a model to keep what matters in its memory.", no_args_is_help=True)

Source = Annotated[str, typer.Argument(metavar="CONFIG", help="A TOML file, or the name of a preset.")]
Out = Annotated[Path, typer.Option("--output", "-o", help="The run's folder: metrics, checkpoints, validation.")]
Changes = Annotated[list[str], typer.Option("--set", help="Change a field: update.rate=1e-6. Can be given again.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder, from its last checkpoint.")]
StopAfter = Annotated[
    int | None, typer.Option(min=1, help="Stop after this step; the schedule stays that of the whole run.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no metrics.")]


@app.command()
def sft(
    config: Source,
    output: Out,
    changes: Changes = [],  # noqa: B006  # typer copies it
    resume: Resume = False,
    stop_after: StopAfter = None,
    quiet: Quiet = False,
) -> None:
    """Supervised training on perfect readings: the warm start."""
    with boundary() as hints:
        _require()
        from memagent.training import sft as trainer
        from memagent.training.config import SftConfig, load_config

        source = _prepare(config, output, resume, changes)
        loaded = load_config(source, SftConfig, changes)
        _keep(source, output, changes)
        hints.append(f"the run can go on: memagent train sft {config} -o {output} --resume")
        trainer.run(loaded, output, resume=resume, stop_after=stop_after, console=None if quiet else err)
        _done(output)


@app.command()
def rl(
    config: Source,
    output: Out,
    changes: Changes = [],  # noqa: B006  # typer copies it
    resume: Resume = False,
    stop_after: StopAfter = None,
    quiet: Quiet = False,
) -> None:
    """Reinforcement learning with Multi-Conv DAPO: the reward of the answer, credited to every memory update."""
    with boundary() as hints:
        _require()
        from memagent.training import rl as trainer
        from memagent.training.config import load_config
        from memagent.training.rl_config import RlConfig

        source = _prepare(config, output, resume, changes)
        loaded = load_config(source, RlConfig, changes)
        _keep(source, output, changes)
        hints.append(f"the run can go on: memagent train rl {config} -o {output} --resume")
        trainer.run(loaded, output, resume=resume, stop_after=stop_after, console=None if quiet else err)
        _done(output)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    folder: Annotated[Path, typer.Argument(help="The model folder to write.")],
    checkpoint: Annotated[str, typer.Option(help="best or last.")] = "best",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16: how weights are written.")] = "bfloat16",
) -> None:
    """Write a checkpoint as a model folder for transformers, vLLM and llama.cpp's converter."""
    with boundary():
        _require()
        from memagent.training.export import export_checkpoint

        export_checkpoint(run, folder, checkpoint, dtype)
        err.print(f"the model: memagent ask … --model {plain(str(folder))}")


def _require() -> None:
    if any(find_spec(name) is None for name in ("torch", "peft", "tensorboard")):
        raise MissingExtraError("training", "train")


def _prepare(config: str, output: Path, resume: bool, changes: list[str]) -> Path:
    """The configuration's file. A folder with a run is not begun again by mistake."""
    from memagent.training.config import find_config

    begun = (output / "metrics.jsonl").exists()
    if begun and not resume:
        raise TrainingError(f"{output} holds a run: go on with --resume, or choose another folder")
    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output} is a file: give a folder for the run")
    return find_config(config)


def _keep(source: Path, output: Path, changes: list[str]) -> None:
    """The configuration beside its metrics, with what the command line changed."""
    output.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, output / "config.toml")
    if changes:
        lines = "".join(f"#   --set {change}\n" for change in changes)
        with (output / "config.toml").open("a", encoding="utf-8") as file:
            file.write(f"\n# Changed on the command line:\n{lines}")


def _done(output: Path) -> None:
    err.print(f"checkpoints: {plain(str(output / 'best'))} and last · curves: memagent report {plain(str(output))}")
