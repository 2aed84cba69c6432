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

from memagent.core.chunking import MIN_CHUNK_TOKENS
from memagent.errors import ConfigError
from memagent.tables import problem
from memagent.training.fields import Beta, Count, Part, Positive, Says, Seed, Share, Weight, step_without_weight
from memagent.training.readings import TaskRecipe
from memagent.training.updates import Recipe

MEAN = "mean"  # of all parts, beside their names in the metrics
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
    """Low-rank adapters (LoRA, arXiv 2106.09685) in place of all weights."""

    rank: int = Field(0, ge=0, le=4096)
    """The rank of the adapters; 0 trains all weights instead."""
    alpha: float = Field(32.0, gt=0)
    """The output of an adapter is multiplied by `alpha` / `rank`."""
    targets: tuple[str, ...] = ()
    """The names of the linear layers that get adapters; an empty list means all but the output layer."""


class PolicyConfig(Part):
    """How to compute with the model."""

    device: Annotated[
        str,
        Field(pattern=r"^(auto|cpu|mps|(cuda|xpu)(:\d{1,3})?)$"),
        Says("`auto`, `cpu`, `mps`, `cuda` or `xpu`, with a number as in `cuda:1`"),
    ] = "auto"
    """The device of torch; `auto` takes `cuda` if there is one, otherwise `cpu`."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """The type of the weights in memory; `bfloat16` is for adapters only, because it loses small updates."""
    bf16: bool = False
    """Multiplies matrices in bfloat16, over weights of `dtype`, in sampling and in training."""
    checkpointing: bool = False
    """Computes activations a second time instead of keeping them: a second forward pass in exchange for memory."""
    lora: LoraConfig = LoraConfig()
    """Adapters in place of all weights."""

    @model_validator(mode="after")
    def _check(self) -> PolicyConfig:
        if self.dtype == "bfloat16" and not self.lora.rank:
            raise ValueError(
                "weights in bfloat16 lose small updates: keep dtype = 'float32' with bf16 = true, or train adapters"
                " (lora.rank)"
            )
        return self


class LogConfig(Part):
    """Where metrics go besides the run's folder and the console."""

    tensorboard: bool = True
    """Writes the metrics for TensorBoard too, in `tensorboard/` of the run's folder."""
    wandb: str = ""
    """The project of Weights & Biases that gets the metrics; an empty text means none."""


class BudgetsConfig(Part):
    """The budgets that `memagent.toml` of a new model names: how to read with it. Rows to train on are as long as `tokens`
    and `chunk` of their part say, and a model that `start` names keeps its own budgets."""

    question: int = Field(64, ge=8)
    """The longest question, in tokens."""
    chunk: int = Field(640, ge=MIN_CHUNK_TOKENS)
    """The part of the document that a turn shows, in tokens."""
    memory: int = Field(128, ge=8)
    """The longest memory, in tokens."""
    answer: int = Field(128, ge=8)
    """The longest answer, in tokens."""


class ModelShape(Part):
    """The dimensions of a new Lfm2 model with random weights."""

    hidden: int = Field(192, ge=8, le=16384)
    """The width of the residual stream; `heads` must divide it into even parts."""
    feed_forward: int = Field(384, ge=8, le=65536)
    """The inner width of the feed-forward part of a layer."""
    heads: int = Field(3, ge=1)
    """Attention heads in a layer; each has keys and values of its own."""
    layers: Annotated[tuple[Literal["conv", "full_attention"], ...], Field(max_length=256)]
    """The kinds of the layers from first to last, of which at least one is `full_attention`."""
    conv: int = Field(4, ge=2, le=4)
    """The width of the convolutions, in tokens."""
    rope_theta: float = Field(1e6, gt=0)
    """The base of the rotary position embedding."""
    window: int = Field(1024, ge=64)
    """The context window, in tokens; rows and chunks to train on may not be longer."""

    @model_validator(mode="after")
    def _check(self) -> ModelShape:
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            raise ValueError(f"hidden = {self.hidden} does not split into {self.heads} heads of even size")
        if "full_attention" not in self.layers:
            raise ValueError("layers needs at least one 'full_attention'")
        return self


class Schedule(Part):
    """Optimisation: how long, how fast, and with which optimizers."""

    steps: int = Field(ge=1)
    """Optimizer steps of the run."""
    batches: int = Field(2, ge=1)
    """Batches in a step, each of one part of the mix; the loss of a step is the mean of theirs."""
    batch_tokens: int = Field(4096, ge=64)
    """The size of a batch, in tokens of its rows, about."""
    rate: float = Field(2e-3, gt=0)
    """The learning rate after the warmup."""
    final: Share = 0.0
    """The learning rate does not fall below this share of `rate`."""
    warmup: int = Field(200, ge=0)
    """Steps over which the learning rate rises linearly to `rate`."""
    decay: Share = 0.5
    """The share of the steps, at the end, over which the learning rate falls linearly towards 0, down to `final`."""
    weight_decay: float = Field(0.02, ge=0)
    """The decoupled weight decay of the matrices inside the layers; embeddings, kernels and norms have none."""
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    """The decay rates of AdamW's two moments; Muon's momentum is always 0.95."""
    clip: float = Field(1.0, gt=0)
    """A gradient whose norm is larger is scaled down to it."""
    average: Share = 0.998
    """The decay, per step, of the weight average that is validated and saved; 0 keeps none."""
    muon: float = Field(0.0, ge=0)
    """The learning rate of Muon (Jordan et al. 2024), for the matrices inside the layers, as a multiple of the schedule's;
    0 uses AdamW for them too."""
    reply_tokens: Count = 0
    """What the summed loss of a batch is divided by: 0 means its own number of reply tokens; a fixed number lets a token
    count the same in a batch of short replies as in one of long replies."""

    def rate_at(self, step: int) -> float:
        """The learning rate of `step` (from 0)."""
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        left = (self.steps - step) / max(1.0, self.decay * self.steps)
        return self.rate * max(self.final, min(1.0, left))


class Mixture(Recipe):
    """Single turns of one kind, drawn one by one, and how often they are used."""

    name: str
    """Its name in the metrics."""
    weight: Weight
    """How often it is drawn, relative to the other parts, over the progress of the run (0 to 1)."""


class ReadingMixture(TaskRecipe):
    """Turns of perfect readings of a task's samples, and how often they are used."""

    name: str
    """Its name in the metrics."""
    weight: Weight
    """How often it is drawn, relative to the other parts, over the progress of the run (0 to 1)."""


class RunConfig(Part):
    """What every run has. Paths are relative to the working directory."""

    # `processes`, `threads` and `workers` have bounds: starting thousands ends a machine rather than a run.
    seed: Seed = 0
    """The seed of all random numbers of the run."""
    processes: Annotated[Positive, Field(le=256)] = 1
    """Processes that compute side by side with the same weights, on CPUs only."""
    threads: Annotated[Count, Field(le=1024)] = 0
    """Threads of torch in each process; 0 means torch's default with one process, otherwise a share of the cores."""
    save_every: Positive = 100
    """Steps between two checkpoints; the last step and a better validation are always saved."""
    policy: PolicyConfig = PolicyConfig()
    """How to compute with the model."""
    log: LogConfig = LogConfig()
    """Where metrics go besides the run's folder and the console."""

    @property
    def keeps_start(self) -> bool:
        """Whether the weights that the run starts from are needed to the end: adapters are added to them."""
        return self.policy.lora.rank > 0


class SftConfig(RunConfig):
    """A supervised run (`memagent train sft`). Neither `workers` nor `graphs` changes what is trained on."""

    renamed: ClassVar[Mapping[str, str]] = {"pieced": "subword_words"}

    start: str | None = None
    """The model to go on from: `embedded` or a Hugging Face folder; without it, `[model]` is the shape of a new one."""
    stack: tuple[Count, ...] = ()
    """Makes the model deeper: its layers by number, from 0, where one that comes again is a copy without an effect at first
    (LLaMA Pro, arXiv 2401.02415)."""
    tokenizer: Path | None = None
    """The folder of the tokenizer for a new model."""
    books: list[Path] = Field(min_length=1)
    """Texts that facts are hidden in: files, or made-up text as `generated:contract`."""
    validation_books: list[Path] = Field(min_length=1)
    """The same for validation; they should be other texts."""
    profile: str
    """The prompt profile that the prompts are worded by: its name or a TOML file."""
    subword_words: float = Field(0.0, ge=0, lt=1)
    """The share of the words in keys and values that are made of the tokenizer's subwords."""
    workers: Annotated[Count, Field(le=256)] = 0
    """Processes that make batches, for a GPU that computes faster than one process writes text; 0 means a thread."""
    graphs: Count = 0
    """Tokens that one CUDA graph computes, for small Lfm2 models on a GPU whose weights are all trained; 0: no graphs."""
    log_every: Positive = 20
    """Steps between two lines of metrics."""
    validate_every: Positive = 500
    """Steps between two validations, which measure the loss and the share of rows that are right in every token."""
    validation_batches: Positive = 2
    """Batches of each part that a validation looks at."""
    budgets: BudgetsConfig = BudgetsConfig()
    """The budgets of a new model."""
    model: ModelShape | None = None
    """The shape of a new model."""
    schedule: Schedule
    """Optimisation."""
    mixture: list[Mixture] = Field(default=[])
    """Single turns to train on."""
    reading: list[ReadingMixture] = Field(default=[])
    """Perfect readings to train on."""

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
        self._check_parts()
        if self.graphs and self.processes > 1:
            raise ValueError("`graphs` are for one process with a GPU: leave `processes` out, or `graphs`")
        if self.model is not None:
            self._fits(self.model.window)
        return self

    def _check_parts(self) -> None:
        parts: list[Mixture | ReadingMixture] = [*self.mixture, *self.reading]
        names = [part.name for part in parts]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"every [[mixture]] and [[reading]] needs a name of its own: there are two {twice!r}")
        if MEAN in names:
            raise ValueError(f"the metrics have {MEAN!r} for the mean of all parts: give the part another name")
        step = step_without_weight([part.weight for part in parts], self.schedule.steps)
        if step is not None:
            raise ValueError(
                f"nothing to train on at step {step} of {self.schedule.steps}: every [[mixture]] and [[reading]] has the"
                " weight 0 there; give one of them more"
            )

    def _fits(self, window: int) -> None:
        budgets = self.budgets
        if (need := budgets.question + budgets.chunk + 2 * budgets.memory) > window:
            raise ValueError(
                f"budgets of {need} tokens for question, chunk and two memories do not fit a window of {window}"
            )
        if (need := budgets.question + budgets.memory + budgets.answer) > window:
            raise ValueError(
                f"budgets of {need} tokens for question, memory and answer do not fit a window of {window}: lower"
                " budgets.answer"
            )
        self.check_rows(window)

    def check_rows(self, window: int, words: int = 0) -> None:
        """Raises ConfigError for rows that are longer than the model's window, in tokens. `words`: tokens of the profile's
        wording, which stand around a chunk."""
        lengths = [(f"mixture {one.name!r}", "rows", one.tokens[1]) for one in self.mixture]
        chunks = "chunks, with their wording," if words else "chunks"
        lengths += [(f"reading {one.name!r}", chunks, one.chunk[1] + words) for one in self.reading]
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
