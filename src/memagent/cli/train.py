"""`memagent train`: supervised warm start, Multi-Conv DAPO, and writing the result as a model folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, cast

import typer

from memagent.cli.console import boundary, err, plain
from memagent.cli.forecast import show
from memagent.errors import ConfigError, MissingExtraError, TrainingError

if TYPE_CHECKING:
    from memagent.models.gguf import Dtype
    from memagent.training.config import SftConfig
    from memagent.training.fields import Part
    from memagent.training.rl_config import RlConfig
    from memagent.training.stages import Planned

Config = TypeVar("Config", bound="Part")

_CONFIG = "config.toml"

app = typer.Typer(help="Train a model to keep what matters in its memory.", no_args_is_help=True)

Source = Annotated[
    str | None,
    typer.Argument(
        metavar="CONFIG",
        help="A TOML file, a preset, or a stage of a recipe (RECIPE:STAGE). With --resume it can be left out.",
        show_default=False,
    ),
]
Out = Annotated[Path, typer.Option("--output", "-o", help="The run's folder: metrics, checkpoints, validation.")]
Changes = Annotated[list[str], typer.Option("--set", help="Change a field: update.rate=1e-6. Repeat for several.")]
Reader = Annotated[
    str | None,
    typer.Option("--reader", "-r", help="The reader to train; the same as --set rollout.reader=…"),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the folder from its last checkpoint.")]
StopAfter = Annotated[
    int | None, typer.Option(min=1, help="Stop after this step; the schedule stays that of the whole run.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no metrics.")]
Engine = Annotated[
    Literal["local", "verl"],
    typer.Option(help="local: this process and one device. verl: Ray and verl, as the table 'cluster' of CONFIG says."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what the run takes (with --engine verl: print what verl would be given).")
]
Tflops = Annotated[
    float | None,
    typer.Option(min=0.001, help="With --dry-run: TFLOP/s of the machine to plan for; by default this one is measured."),
]


@app.command()
def sft(
    output: Out,
    config: Source = None,
    changes: Changes = [],  # noqa: B006  # typer copies it
    resume: Resume = False,
    stop_after: StopAfter = None,
    quiet: Quiet = False,
    dry_run: DryRun = False,
    tflops: Tflops = None,
) -> None:
    """Supervised training on perfect readings: the warm start."""
    with boundary() as hints:
        _require()
        from memagent.training.config import SftConfig
        from memagent.training.run import Launch
        from memagent.training.sft import run

        loaded, source = _configured(SftConfig, config, output, changes, resume or dry_run)
        if _forecast(loaded, dry_run, tflops):
            return
        with _resumable("sft", output, hints):
            run(loaded, Launch(output, resume, stop_after, None if quiet else err, source))


@app.command()
def rl(
    output: Out,
    config: Source = None,
    changes: Changes = [],  # noqa: B006  # typer copies it
    reader: Reader = None,
    resume: Resume = False,
    stop_after: StopAfter = None,
    quiet: Quiet = False,
    engine: Engine = "local",
    dry_run: DryRun = False,
    tflops: Tflops = None,
) -> None:
    """Reinforcement learning with Multi-Conv DAPO: the reward of the answer, credited to every memory update."""
    with boundary() as hints:
        _require()
        from memagent.training.rl_config import RlConfig
        from memagent.training.run import Launch

        chosen = [f"rollout.reader={reader}"] if reader else []
        loaded, source = _configured(RlConfig, config, output, [*changes, *chosen], resume or dry_run)
        _check_engine(output, engine, resume)
        launch = Launch(output, resume, stop_after, None if quiet else err, source)
        if tflops is not None and engine == "verl":
            raise ConfigError("--tflops is for a forecast of --engine local")
        if dry_run and engine == "verl":
            _prepare_verl(loaded)
            _show(loaded, output)
            return
        if _forecast(loaded, dry_run, tflops):
            return
        with _resumable("rl", output, hints, engine):
            if engine == "verl":
                _prepare_verl(loaded)
                from memagent.cluster.run import run as run_on_verl

                run_on_verl(loaded, launch)
            else:
                from memagent.training.rl import run

                run(loaded, launch)


@app.command()
def recipe(
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder for the runs: one for each stage, by its name.")],
    source: Annotated[str, typer.Argument(metavar="RECIPE", help="A TOML file, or the name of a recipe.")] = "embedded",
    only: Annotated[str | None, typer.Option(metavar="STAGE", help="Train this stage alone.")] = None,
    first: Annotated[str | None, typer.Option("--from", metavar="STAGE", help="Begin with this stage.")] = None,
    last: Annotated[str | None, typer.Option("--until", metavar="STAGE", help="End with this stage.")] = None,
    changes: Annotated[
        list[str],
        typer.Option("--set", help="Change a field of one stage (STAGE.seed=7), of a kind (rl.steps=9) or of all stages."),
    ] = [],  # noqa: B006  # typer copies it
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the stages, and train nothing.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train all stages of a recipe, each from the weights of the one before it.

    To continue an interrupted recipe, run the same command again: finished stages are skipped.
    """
    with boundary() as hints:
        _require()
        from memagent.training.recipe import position
        from memagent.training.stages import changed_since, check_begun, plan, train

        stages = plan(source, output, changes)
        names = [one.stage.name for one in stages]
        if only and (first or last):
            raise ConfigError("--only is a stage alone: give it without --from and --until")
        begin, end = (position(names, name) if name else None for name in (only or first, only or last))
        chosen = stages[begin : None if end is None else end + 1]
        if not chosen:
            raise ConfigError(f"--from {first} comes after --until {last}: the order is {', '.join(names)}")
        if dry_run:
            for one in chosen:
                _show_stage(one)
            return
        check_begun(stages, chosen)
        hints.append("run the same command again: it goes on where it was interrupted")
        for one in chosen:
            state = "finished before" if one.finished else f"{one.steps} steps"
            if difference := changed_since(one):
                state += f", resumed with another configuration ({difference})"
            err.print(plain(f"stage {one.stage.name} ({names.index(one.stage.name) + 1} of {len(names)}): {state}"))
            if not one.finished:
                train(one, None if quiet else err)
        err.print(f"the model: memagent train export {plain(str(chosen[-1].folder))} FOLDER --checkpoint last")


@app.command()
def fields(
    what: Annotated[Literal["sft", "rl", "recipe"], typer.Argument(help="Whose file: of `train sft`, `rl` or `recipe`.")],
) -> None:
    """List the fields of a configuration: what each is, what it may be, its default, and what it does.

    Names are those that --set takes.
    """
    with boundary():
        _require()
        from memagent.training.reference import tables

        for table in tables(what):
            print(f"{table.head or '# the file'}  {table.says}\n")
            for row in table.rows:
                name = f"{table.place}.{row.name}" if table.place else row.name
                default = row.default if row.default in ("", "required") else f"default {row.default}"
                print(f"{name}: {', '.join(part for part in (row.kind, row.allowed, default) if part)}")
                print(f"    {row.does}")
            print()


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The model folder to write.")],
    checkpoint: Annotated[str, typer.Option(help="best or last.")] = "best",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16: how weights are written.")] = "bfloat16",
    blend: Annotated[
        list[str],
        typer.Option(metavar="RUN=SHARE", help="Another run, or a model folder, and its share. Repeat for several."),
    ] = [],  # noqa: B006  # typer copies it
) -> None:
    """Write a checkpoint as a model folder for transformers and vLLM; `train gguf` makes a file for llama.cpp of it.

    Of a run on verl it is the last one, its shards merged.
    """
    with boundary():
        _require()
        from memagent.training.checkpoints import verl_step

        if verl_step(run) is not None:
            if blend:
                raise ConfigError("--blend is for runs of the small trainer, not for one on verl")
            from memagent.cluster.merge import merge

            merge(run, folder, dtype)
        else:
            from memagent.training.export import export_checkpoint

            step = export_checkpoint(run, folder, checkpoint, dtype, _shares(blend))
            untrained = "" if step else ", the weights that the run began with: --checkpoint last has those after it"
            err.print(f"[dim]checkpoint {checkpoint}: step {step}{untrained}[/]")
        err.print(f"the model: memagent ask … --model {plain(str(folder))}")


@app.command()
def gguf(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model folder, or embedded.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    dtype: Annotated[str, typer.Option(help="f16 or f32: how matrices are written.")] = "f16",
) -> None:
    """Write a model folder as a GGUF file for llama.cpp.

    It knows models of type lfm2, llama, mistral, qwen2 and qwen3 whose tokenizers split words as those of Llama 3,
    Qwen, GPT-2 or SmolLM do.
    """
    with boundary():
        from memagent.models.gguf import write_gguf
        from memagent.models.open import model_folder

        if dtype not in ("f16", "f32"):
            raise ConfigError(f"no dtype {dtype!r} to write matrices in; known: f16, f32")
        if file.exists():
            raise ConfigError(f"{file} exists: give a new file, or delete it")
        write_gguf(model_folder(model), file, dtype=cast("Dtype", dtype))
        err.print(f"the model: llama-server -m {plain(str(file))}")


def _shares(given: list[str]) -> list[tuple[Path, float]]:
    """RUN=SHARE of the command line."""
    shares = []
    for one in given:
        run, _, share = one.rpartition("=")
        try:
            shares.append((Path(run), float(share)))
        except ValueError as error:
            raise ConfigError(f"--blend takes RUN=SHARE, such as runs/other=0.4, not {one!r}") from error
    return shares


def _show_stage(planned: Planned) -> None:
    """Where a stage starts, what it trains on, and how far it is."""
    stage, config, reached = planned.stage, planned.config, planned.reached
    if planned.before:
        start = f"the {'run' if stage.resume else 'weights'} of {planned.before.name}"
        start += "".join(f" and {100 * share:g} % of {name}" for name, share in stage.blend.items())
    else:
        start = config.start or "random weights"
    steps = f"{planned.steps} steps" + (f" of a schedule of {planned.schedule}" if stage.stop_after else "")
    state = "finished" if planned.finished else "not begun" if reached is None else f"interrupted, saved at step {reached}"
    print(f"{stage.name}: {stage.kind}, {steps}, from {start}; {state}")
    if stage.about:
        print(f"    {stage.about}")
    print(f"    {', '.join(planned.parts)}")


def _forecast(config: RlConfig | SftConfig, dry_run: bool, tflops: float | None) -> bool:
    """Shows what a run takes, if that is all that is asked for."""
    if tflops is not None and not dry_run:
        raise ConfigError("--tflops is for a forecast: it goes with --dry-run")
    if dry_run:
        show(config, tflops)
    return dry_run


def _require() -> None:
    if any(find_spec(name) is None for name in ("torch", "peft", "tensorboard", "tomlkit")):
        raise MissingExtraError("training", "train")


def _check_engine(output: Path, engine: str, resume: bool) -> None:
    """Only the engine that began a run can resume it: the other one would not find its checkpoints and start again."""
    from memagent.training.checkpoints import Checkpoints, verl_step

    began = "local" if Checkpoints(output).exist() else "verl" if verl_step(output) is not None else engine
    if resume and began != engine:
        raise TrainingError(f"the run in {output} was begun with --engine {began}: resume it with the same engine")


def _require_verl() -> None:
    if any(find_spec(name) is None for name in ("verl", "ray", "transfer_queue")):
        raise MissingExtraError("training on verl", "cluster")


def _prepare_verl(config: RlConfig) -> None:
    """Before anything imports verl: it asks the environment what machine it is on."""
    _require_verl()
    from memagent.cluster.environment import prepare

    prepare(config.cluster.device)


def _show(config: RlConfig, output: Path) -> None:
    """What would be run: notes on it, and verl's configuration as YAML."""
    from omegaconf import OmegaConf

    from memagent.cluster.layout import describe
    from memagent.cluster.settings import verl_config

    settings = verl_config(config, output)
    for line in describe(config):
        print(f"# {line}")
    print(OmegaConf.to_yaml(settings, resolve=True))


def _configured(
    kind: type[Config], source: str | None, output: Path, changes: list[str], resume: bool
) -> tuple[Config, str]:
    """The checked configuration, and its TOML with the changes made: what the run keeps, and a resume begins with.

    A folder with a run is not begun again by mistake.
    """
    from memagent.training.recipe import read_run, read_stage

    kept = output / _CONFIG
    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output} is a file: give a folder for the run")
    metrics = output / "metrics.jsonl"
    if not resume and metrics.exists() and (kept.exists() or metrics.stat().st_size):
        raise TrainingError(f"{output} holds a run: resume it with --resume, or choose another folder")
    if source is None and not (resume and kept.exists()):
        why = f"there is no run in {output} to resume" if resume else "a run needs a configuration"
        raise ConfigError(f"{why}: give CONFIG, a TOML file or the name of a preset")
    if source and ":" in source and not Path(source).is_file():
        return read_stage(source, kind, changes)
    return read_run(source or kept, kind, changes)


@contextmanager
def _resumable(command: str, output: Path, hints: list[str], engine: str = "local") -> Iterator[None]:
    """Says where the run's results are, or how to go on with it, if it had begun."""
    chosen = "" if engine == "local" else f" --engine {engine}"
    try:
        yield
    finally:
        if (output / _CONFIG).exists():
            hints.append(f"the run can go on: memagent train {command} -o {output} --resume{chosen}")
    made = f"memagent train export {output} FOLDER"
    if engine == "local":
        made = " and ".join(str(output / name) for name in ("best", "last") if (output / name).is_symlink())
    err.print(f"checkpoints: {plain(made)} · curves: memagent report {plain(str(output))}")
