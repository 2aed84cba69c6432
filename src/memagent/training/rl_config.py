"""The configuration of reinforcement learning with Multi-Conv DAPO. Defaults are DAPO's and MemAgent's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from memagent.core.outcomes import Rules
from memagent.training.cluster_config import ClusterConfig
from memagent.training.config import RunConfig
from memagent.training.credit import Aggregate, Credit, Normalise
from memagent.training.fields import (
    Beta,
    ChunkTokens,
    Count,
    Part,
    Positive,
    Says,
    Scorer,
    Share,
    TokenRange,
    Weight,
    either,
    one_of,
    step_without_weight,
)
from memagent.training.loss import Objective
from memagent.training.readings import check_options
from memagent.training.shaping import SHAPINGS, TURN_REWARDS

_TURN_NAMES = either([*TURN_REWARDS])


class RolloutConfig(Part):
    """Sampling. `prompts` × `group` readings make a batch. Budgets are in tokens; what is not given is the model's own."""

    prompts: Positive = 16
    """Documents in a batch."""
    group: int = Field(8, ge=2)
    """Readings of each document: a group, within which rewards are compared (G in arXiv 2507.02259)."""
    resample: int = Field(2, ge=0)
    """How many more batches may be sampled when groups have no signal and are left out (dynamic sampling, DAPO, arXiv
    2503.14476)."""
    temperature: float = Field(1.0, ge=0.001, le=10)
    """The temperature of sampling; it is part of the policy whose ratios are taken."""
    top_p: float = Field(1.0, gt=0, le=1)
    """The probability mass of the nucleus that tokens are drawn from; recorded probabilities are those before it is cut."""
    rules: Rules = "careful"
    """What happens to replies that are empty, too long or say that nothing changed: `careful` asks again or keeps the
    memory, `paper` takes them as they are, cut at the budget."""
    reader: str = "memory"
    """The reader whose turns are sampled and trained on (`memagent readers`), other than `auto`."""
    reader_options: dict[str, Any] = Field(default={})
    """Options of the reader."""
    batch_tokens: int = Field(131_072, ge=256)
    """Tokens of all sequences that one pass of the sampler holds; a longer sequence goes alone."""
    profile: str | None = None
    """The prompt profile: its name or a TOML file."""
    question_tokens: Positive | None = None
    """The longest question, in tokens."""
    chunk_tokens: ChunkTokens | None = None
    """The part of the document that a turn shows, in tokens."""
    memory_tokens: Positive | None = None
    """The longest memory, in tokens."""
    answer_tokens: Positive | None = None
    """The longest answer, in tokens."""
    reasoning_tokens: Count | None = None
    """Tokens on top of each reply for a model that thinks before it replies."""


class AlgorithmConfig(Part):
    """Multi-Conv DAPO (arXiv 2507.02259, §3.2) and what it is compared with."""

    reward: Scorer = "own"
    """The scorer of the answer, which makes the reward; `own` is the one that the sample names, otherwise `strict`."""
    shaping: Annotated[dict[str, float], one_of([*SHAPINGS])] = Field(default={})
    """More terms of the reward, with their weights: `fewer_rounds` (PI-Mem, arXiv 2608.03048), `right_skips` (after
    GRU-Mem, arXiv 2602.10560)."""
    turns: Annotated[dict[str, float], Says(f"{_TURN_NAMES}: above 0, at most 1 together")] = Field(default={})
    """The share of the credit for what each turn did for itself (GRU-Mem, arXiv 2602.10560); the rest is the reading's.
    Needs `credit = "all"`."""
    credit: Credit = "all"
    """`all` gives every conversation the advantage of its reading, `final` only the answer."""
    normalise: Normalise = "none"
    """The advantage: `none` is R − mean, `std` also divides by the standard deviation of the group (GRPO, arXiv
    2402.03300)."""
    aggregate: Aggregate = "token"
    """The mean of the loss: `token` is over all tokens of the update (DAPO), `sequence` first within each conversation
    (GRPO)."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    """ε_low: a ratio below 1 − ε_low is clipped."""
    clip_high: float = Field(0.28, gt=0)
    """ε_high: a ratio above 1 + ε_high is clipped."""
    dual_clip: Annotated[float, Says("0, or above 1")] = Field(0.0, ge=0)
    """c of the dual clip, which bounds the loss where the advantage is negative; 0 means none."""
    kl: float = Field(1e-3, ge=0)
    """β, the weight of the KL penalty (k3) against the weights of the start; 0 keeps no copy of them."""
    entropy: float = Field(0.0, ge=0)
    """α, the weight of an entropy bonus."""
    old_logprobs: Literal["sampled", "recomputed"] = "sampled"
    """What ratios refer to: `sampled` is the record of sampling, `recomputed` a forward pass before the update."""

    @field_validator("dual_clip")
    @classmethod
    def _above_one(cls, value: float) -> float:
        if 0 < value <= 1:
            raise ValueError(f"a dual clip of {value} would clip ratios of 1: give one above 1, or 0 for none")
        return value

    @field_validator("shaping")
    @classmethod
    def _known(cls, value: dict[str, float]) -> dict[str, float]:
        if unknown := sorted(set(value) - set(SHAPINGS)):
            raise ValueError(f"there is no reward shaping {unknown[0]!r}: use {', '.join(SHAPINGS)}")
        return value

    @field_validator("turns")
    @classmethod
    def _shares(cls, value: dict[str, float]) -> dict[str, float]:
        if unknown := sorted(set(value) - set(TURN_REWARDS)):
            raise ValueError(f"there is no reward of turns {unknown[0]!r}: use {', '.join(TURN_REWARDS)}")
        if any(share <= 0 for share in value.values()) or sum(value.values()) > 1:
            raise ValueError(f"`turns` are shares of the credit, above 0 and at most 1 together, not {value}")
        return value

    @model_validator(mode="after")
    def _of_all_turns(self) -> Self:
        if self.turns and self.credit != "all":
            raise ValueError(f'`turns` credits every turn, and credit = "{self.credit}" leaves them out: use "all"')
        return self

    @property
    def objective(self) -> Objective:
        names = ("clip_low", "clip_high", "dual_clip", "kl", "entropy")
        return Objective(**{name: getattr(self, name) for name in names})


class UpdateConfig(Part):
    """Optimisation with AdamW."""

    updates: Positive = 4
    """Optimizer steps that a batch is consumed in, counted in readings; at most one for each reading."""
    batch_tokens: int = Field(16_384, ge=64)
    """Tokens of a micro-batch, prompts and padding included; a longer conversation goes alone."""
    rate: float = Field(1e-6, gt=0)
    """The learning rate after the warmup."""
    warmup: int = Field(0, ge=0)
    """Batches over which the learning rate rises linearly to `rate`."""
    weight_decay: float = Field(0.01, ge=0)
    """The decoupled weight decay of AdamW, for all weights that are trained."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    """The decay rates of AdamW's two moments."""
    clip: float = Field(1.0, gt=0)
    """A gradient whose norm is larger is scaled down to it."""
    explode: float = Field(1e4, gt=0)
    """A gradient whose norm is larger stops the run."""
    average: Share = 0.0
    """The decay, per step, of the weight average that is validated and saved; 0 keeps none. Sampling and updates go on with
    the weights themselves."""

    def rate_at(self, batch: int) -> float:
        """The learning rate of batch `batch`, from 0."""
        return self.rate * min(1.0, (batch + 1) / (self.warmup + 1))


class Documents(Part):
    """Samples of a task of the catalogue, made on the fly, or of a file."""

    name: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"),
        Says("1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit"),
    ]  # of a file and a folder of the run, too
    """Its name in the metrics and in the run's folder."""
    task: str | None = None
    """A task of the catalogue (`memagent tasks`) whose documents are made; either this or `file`."""
    file: Path | None = None
    """A sample file; either this or `task`."""
    tokens: Sequence[int] = ()
    """The length of documents that are made, in tokens."""
    options: dict[str, Any] = Field(default={})
    """Options of the task."""
    reader: str | None = None
    """The reader of these documents, in place of `rollout.reader`."""
    reader_options: dict[str, Any] = Field(default={})
    """Options of the reader, over those of `rollout` if it is the same reader."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.task is None) == (self.file is None):
            raise ValueError("give either `task`, the name of a task, or `file`, a sample file")
        if (self.task is None) == bool(self.tokens):
            raise ValueError("`tokens` is the length of documents that are made: it goes with `task`, not with `file`")
        return self


class TaskMix(Documents):
    """Documents to train on, and how often."""

    tokens: TokenRange | tuple[()] = ()
    """The length of documents that are made, in tokens; it goes with `task`."""
    options: dict[str, Any] = Field(default={})
    """Options of the task; a list means "one of these, at random"."""
    weight: Weight = Field(default=[(0.0, 1.0)])
    """How often it is drawn, relative to the other tasks, over the progress of the run (0 to 1)."""

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        if self.task is not None:
            check_options(self.task, self.options)
        return self


class ValidationTask(Documents):
    """Documents to validate on: some of a task at each length, or all of a sample file."""

    tokens: tuple[Positive, ...] = ()
    """The lengths of documents that are made, in tokens; it goes with `task`."""
    samples: Positive = 64
    """The number of documents that are made at each length."""

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        if self.task is not None:
            check_options(self.task, self.options, drawn=False)
        return self


class ValidationConfig(Part):
    """Readings of held-out documents, before the first batch, every `every` batches and after the last. The checkpoint with
    the best mean score is kept as `best`."""

    every: Positive = 10
    """Batches between two validations."""
    seed: int = 1_000_003
    """The seed of the documents that are made."""
    batch: Positive = 64
    """Readings that run together."""
    patience: int = Field(0, ge=0)
    """Validations without a better mean score after which the run stops; 0 means never."""
    score: Scorer = "own"
    """The scorer of the answers; `own` is the one that the sample names, otherwise `strict`."""
    temperature: Annotated[float, Says("0, or 0.001 to 10")] = Field(0.0, ge=0, le=10)
    """The temperature of these readings; 0 is greedy. Where the engine takes seeds, sampling uses the same random streams
    each time."""
    top_p: float = Field(1.0, gt=0, le=1)
    """The probability mass of the nucleus that tokens are drawn from."""
    task: list[ValidationTask] = Field(default=[])
    """What is read; an empty list means no validation."""

    @field_validator("temperature")
    @classmethod
    def _greedy_or_not(cls, value: float) -> float:
        if 0 < value < 0.001:
            raise ValueError(f"a temperature of {value} is neither 0 (greedy) nor at least 0.001")
        return value

    @field_validator("task")
    @classmethod
    def _named_apart(cls, value: list[ValidationTask]) -> list[ValidationTask]:
        names = [part.name for part in value]
        if len(set(names)) < len(names):
            raise ValueError(f"every validation task needs a name of its own, not {names}")
        return value


class RlConfig(RunConfig):
    """A run of reinforcement learning (`memagent train rl`)."""

    start: str
    """The model to start from: `embedded` or a Hugging Face folder."""
    steps: Positive
    """Batches of the run."""
    save_every: Positive = 10
    """Batches between two checkpoints; the last batch and a better validation are always saved."""
    books: list[Path] = Field(default=[])
    """Texts that facts are hidden in, for tasks that are made: files, or made-up text as `generated:contract`."""
    rollout: RolloutConfig = RolloutConfig()
    """Sampling."""
    algorithm: AlgorithmConfig = AlgorithmConfig()
    """What is learnt from the readings."""
    update: UpdateConfig = UpdateConfig()
    """Optimisation."""
    task: list[TaskMix] = Field(min_length=1)
    """Documents to train on."""
    validation: ValidationConfig = ValidationConfig()
    """Readings of held-out documents."""
    cluster: ClusterConfig = ClusterConfig()
    """Where to train with `--engine verl`."""

    @property
    def keeps_start(self) -> bool:
        """As in any run; and where the policy is kept near its start (KL), that is looked at again and again."""
        return super().keeps_start or self.algorithm.kl > 0

    @model_validator(mode="after")
    def _check(self) -> RlConfig:
        if any(part.task for part in self.task) and not self.books:
            raise ValueError("tasks that are made need `books`, texts to hide facts in, which no evaluation uses")
        names = [part.name for part in self.task]
        if len(set(names)) < len(names):
            raise ValueError(f"every [[task]] needs a name of its own, not {names}")
        step = step_without_weight([part.weight for part in self.task], self.steps)
        if step is not None:
            raise ValueError(
                f"nothing to train on at step {step} of {self.steps}: every [[task]] has the weight 0 there; give one of"
                " them more"
            )
        trained = {part.file.resolve() for part in self.task if part.file is not None}
        if both := [part for part in self.validation.task if part.file is not None and part.file.resolve() in trained]:
            raise ValueError(f"{both[0].file} is trained on: validate on other samples")
        return self
