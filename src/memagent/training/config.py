"""The configuration of a training run: a TOML file, checked before anything starts."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import tomlkit
from pydantic import Field, ValidationError, model_validator
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT

from memagent.errors import ConfigError
from memagent.tables import problem
from memagent.training.fields import Beta, Count, Part, Positive, Seed, Share, Weight
from memagent.training.readings import TaskRecipe
from memagent.training.updates import Recipe

PRESETS = Path(__file__).parent / "presets"
# What former presets and configurations are now: stages of the recipe `embedded`.
_FORMER = {
    "configs/compact-start.toml": "copying",
    "configs/compact.toml": "facts",
    "embedded-cpu-sft": "all-tasks",
    "embedded-cpu-long-sft": "long-documents",
    "embedded-cpu-rivals-sft": "hard-negatives",
    "embedded-cpu-near-sft": "partial-matches",
    "embedded-cpu-pieced-sft": "subword-keys",
    "embedded-cpu-copies-sft": "chains",
    "embedded-cpu": "rl-1",
    "embedded-gpu": "rl-1",
}


class LoraConfig(Part):
    """Low-rank adapters in place of all weights. `rank` 0: none. `targets`: names of linear layers; empty: all of them."""

    rank: int = Field(0, ge=0)
    alpha: float = Field(32.0, gt=0)
    targets: tuple[str, ...] = ()


class PolicyConfig(Part):
    """How to compute with the model. `bf16`: products in bfloat16 over weights of `dtype`. `checkpointing` trades a second
    forward pass for the memory of activations."""

    device: str = Field("auto", pattern=r"^(auto|cpu|mps|(cuda|xpu)(:\d+)?)$")
    dtype: Literal["float32", "bfloat16"] = "float32"
    bf16: bool = False
    checkpointing: bool = False
    lora: LoraConfig = LoraConfig()

    @model_validator(mode="after")
    def _check(self) -> PolicyConfig:
        if self.dtype == "bfloat16" and not self.lora.rank:
            raise ValueError(
                "weights in bfloat16 lose small updates: keep dtype = 'float32' with bf16 = true, or train adapters"
                " (lora.rank)"
            )
        return self


class LogConfig(Part):
    """Where metrics go besides the run's folder and the console. `wandb`: the name of a project, "" for none."""

    tensorboard: bool = True
    wandb: str = ""


class BudgetsConfig(Part):
    """The budgets of a new model, in tokens."""

    question: int = Field(64, ge=8)
    chunk: int = Field(640, ge=16)
    memory: int = Field(128, ge=8)
    answer: int = Field(128, ge=8)


class ModelShape(Part):
    """Dimensions of the Lfm2 model. `layers` are "conv" or "full_attention"; `conv` is the convolution's width."""

    hidden: int = Field(192, ge=8)
    feed_forward: int = Field(384, ge=8)
    heads: int = Field(3, ge=1)
    layers: tuple[Literal["conv", "full_attention"], ...]
    conv: int = Field(4, ge=2, le=4)
    rope_theta: float = Field(1e6, gt=0)
    window: int = Field(1024, ge=64)

    @model_validator(mode="after")
    def _check(self) -> ModelShape:
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            raise ValueError(f"hidden = {self.hidden} does not split into {self.heads} heads of even size")
        if "full_attention" not in self.layers:
            raise ValueError("layers needs at least one 'full_attention'")
        return self


class Schedule(Part):
    """Optimisation. The rate rises over `warmup` steps, stays, and falls linearly to `final` × rate over the last
    `decay` share of the steps. `average` is the decay of the weight average that is shipped (0: none).

    The loss of a batch is the mean over its reply tokens (`reply_tokens` 0), or their sum divided by `reply_tokens`: then a
    token counts the same in a batch of short replies as in one of long replies.
    """

    steps: int = Field(ge=1)
    batches: int = Field(2, ge=1)
    batch_tokens: int = Field(4096, ge=64)
    rate: float = Field(2e-3, gt=0)
    final: Share = 0.0
    warmup: int = Field(200, ge=0)
    decay: Share = 0.5
    weight_decay: float = Field(0.02, ge=0)
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    clip: float = Field(1.0, gt=0)
    average: Share = 0.998
    muon: float = Field(0.0, ge=0)
    reply_tokens: Count = 0

    def rate_at(self, step: int) -> float:
        """The learning rate of `step` (from 0)."""
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        left = (self.steps - step) / max(1.0, self.decay * self.steps)
        return self.rate * max(self.final, min(1.0, left))


class Mixture(Recipe):
    """One kind of exercise, and how often it is used."""

    name: str
    weight: Weight


class ReadingMixture(TaskRecipe):
    """Turns of perfect readings of a task's samples, and how often they are used."""

    name: str
    weight: Weight


class RunConfig(Part):
    """What every run has. Paths are relative to the working directory. `processes` compute side by side with the same
    weights, on CPUs; `threads` is that of torch in each of them; 0: its default, or a share of the cores. Both have bounds,
    because starting thousands ends a machine rather than a run."""

    seed: Seed = 0
    processes: Annotated[Positive, Field(le=256)] = 1
    threads: Annotated[Count, Field(le=1024)] = 0
    save_every: Positive = 100
    policy: PolicyConfig = PolicyConfig()
    log: LogConfig = LogConfig()


class SftConfig(RunConfig):
    """A supervised run. `start` is "embedded" or the folder of a model, `profile` a name or a file. `stack` makes the model
    deeper: its layers by number, from 0; one that comes again is a copy without an effect at first. `subword_words`: share
    of the words in keys and values that are made of the tokenizer's subwords. `workers`: processes that make batches, for
    a GPU, which computes faster than one process writes text. `graphs`: tokens that one CUDA graph computes, for small
    models on a GPU (`memagent.training.graphs`); 0: no graphs. Neither changes what is trained on."""

    renamed: ClassVar[Mapping[str, str]] = {"pieced": "subword_words"}

    start: str | None = None
    stack: tuple[Count, ...] = ()
    tokenizer: Path | None = None
    books: list[Path] = Field(min_length=1)
    validation_books: list[Path] = Field(min_length=1)
    profile: str
    subword_words: float = Field(0.0, ge=0, lt=1)
    workers: Annotated[Count, Field(le=256)] = 0
    graphs: Count = 0
    log_every: Positive = 20
    validate_every: Positive = 500
    validation_batches: Positive = 2
    budgets: BudgetsConfig = BudgetsConfig()
    model: ModelShape | None = None
    schedule: Schedule
    mixture: list[Mixture] = Field(default=[])
    reading: list[ReadingMixture] = Field(default=[])

    @model_validator(mode="after")
    def _check(self) -> SftConfig:
        if (self.start is None) == (self.model is None):
            raise ValueError("give either `start`, a model folder to go on from, or [model], the shape of a new one")
        if self.stack and self.start is None:
            raise ValueError("`stack` makes the model of `start` deeper; the layers of a new one are those of [model]")
        if (self.model is None) != (self.tokenizer is None):
            raise ValueError("`tokenizer`, a folder, goes with [model]: a model to go on from has its own")
        if not self.mixture and not self.reading:
            raise ValueError("nothing to train on: give at least one [[mixture]] or [[reading]]")
        weights = [one.weight for one in self.mixture] + [one.weight for one in self.reading]
        if not any(weight for points in weights for _, weight in points):
            raise ValueError("nothing to train on: every [[mixture]] and [[reading]] has the weight 0")
        if self.graphs and self.processes > 1:
            raise ValueError("`graphs` are for one process with a GPU: leave `processes` out, or `graphs`")
        if self.model is not None:
            self._fits(self.model.window)
        return self

    def _fits(self, window: int) -> None:
        budgets = self.budgets
        if (need := budgets.question + budgets.chunk + 2 * budgets.memory) > window:
            raise ValueError(
                f"budgets of {need} tokens for question, chunk and two memories do not fit a window of {window}"
            )
        self.check_rows(window)

    def check_rows(self, window: int) -> None:
        """Raises ConfigError for rows that are longer than the model's window, in tokens."""
        lengths = [(f"mixture {one.name!r}", "rows", one.tokens[1]) for one in self.mixture]
        lengths += [(f"reading {one.name!r}", "chunks", one.chunk[1]) for one in self.reading]
        for where, what, tokens in lengths:
            if tokens > window:
                raise ConfigError(f"{where} has {what} of {tokens} tokens, and the window is {window}: make them shorter")


Config = TypeVar("Config", bound=Part)


def load_config(source: str | Path, kind: type[Config], changes: Sequence[str] = ()) -> Config:
    """Reads and checks a configuration; see `read_config`."""
    return read_config(source, kind, changes)[0]


def read_config(source: str | Path, kind: type[Config], changes: Sequence[str] = ()) -> tuple[Config, str]:
    """The checked configuration and its TOML; see `config_text`. Raises ConfigError that names file and field."""
    text = config_text(source, changes)
    return checked(text, kind, str(find_config(source))), text


def checked(text: str, kind: type[Config], where: str) -> Config:
    """The configuration in a TOML text. Raises ConfigError that names `where` and the field."""
    try:
        return kind.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: cannot be read: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"{where}: {problem(error, kind)}") from error


def config_text(source: str | Path, changes: Sequence[str] = ()) -> str:
    """The TOML of a file, or of the preset of that name, with its comments and with `changes` made in it.

    Raises ConfigError for a file that cannot be read, and as `changed` does.
    """
    path = find_config(source)
    try:
        return changed(path.read_text(encoding="utf-8"), changes)
    except (OSError, UnicodeDecodeError, TOMLKitError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def changed(text: str, changes: Sequence[str]) -> str:
    """A TOML text with changes made in it.

    A change is a text "a.b=c", its value TOML or a plain word; "task.0.tokens=[512, 1024]" reaches into a list. Raises
    ConfigError for a change that reaches nowhere, and TOMLKitError.
    """
    document = tomlkit.parse(text)
    for change in changes:
        _apply(document, change)
    return tomlkit.dumps(document)


def find_config(source: str | Path) -> Path:
    """The file of a configuration or preset. Raises ConfigError that lists the presets."""
    path = Path(source)
    if path.is_file():
        return path
    preset = PRESETS / f"{source}.toml"
    if preset.is_file():
        return preset
    if stage := _FORMER.get(str(source)):
        raise ConfigError(
            f"{source} is now the stage {stage!r} of the recipe `embedded`: give embedded:{stage}, or train all stages with"
            " `memagent train recipe embedded`"
        )
    known = ", ".join(sorted(path.stem for path in PRESETS.glob("*.toml")))
    raise ConfigError(
        f"no configuration {str(source)!r}: give a TOML file, a stage of a recipe (RECIPE:STAGE), or a preset: {known}"
    )


def _apply(values: tomlkit.TOMLDocument, change: str) -> None:
    """Sets one value. Raises ConfigError for a text that is not an assignment, and for a place that does not exist."""
    name, equals, text = change.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"--set {change!r}: expected FIELD=VALUE, as in update.rate=1e-6")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    place: Any = values
    *path, last = name.strip().split(".")
    for part in path:
        place = place[_index(place, part, change)] if isinstance(place, list) else place.setdefault(part, {})
        if not isinstance(place, dict | list):
            raise ConfigError(f"--set {change!r}: {part} is a value, there is nothing inside it")
    if isinstance(place, AoT) and not isinstance(value, dict):
        raise ConfigError(f"--set {change!r}: {last} is a table: give one of its fields, or a table in its place")
    place[_index(place, last, change) if isinstance(place, list) else last] = value


def _index(place: list[Any], part: str, change: str) -> int:
    if not part.isdigit() or int(part) >= len(place):
        raise ConfigError(f"--set {change!r}: {part} is none of the {len(place)} entries, which count from 0")
    return int(part)
