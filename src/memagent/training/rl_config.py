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
from memagent.training.fields import Beta, Count, Part, Positive, Scorer, Share, Some, Weight
from memagent.training.loss import Objective
from memagent.training.shaping import SHAPINGS, TURN_REWARDS


class RolloutConfig(Part):
    """Sampling. `prompts` × `group` readings make a batch; groups without signal are left out, and up to `resample` more
    batches are sampled in their place. Budgets are in tokens; what is not given is the model's own."""

    prompts: Positive = 16
    group: int = Field(8, ge=2)
    resample: int = Field(2, ge=0)
    temperature: float = Field(1.0, ge=0.001, le=10)
    top_p: float = Field(1.0, gt=0, le=1)
    rules: Rules = "careful"
    reader: str = "memory"
    reader_options: dict[str, Any] = Field(default={})
    batch_tokens: int = Field(131_072, ge=256)
    profile: str | None = None
    question_tokens: Positive | None = None
    chunk_tokens: Positive | None = None
    memory_tokens: Positive | None = None
    answer_tokens: Positive | None = None
    reasoning_tokens: Count | None = None


class AlgorithmConfig(Part):
    """Multi-Conv DAPO and what it is compared with.

    reward        name of a scorer, applied to the answer
    shaping       what else the reward is made of, with its weight: see `memagent.training.shaping`
    turns         by what each conversation is judged for itself, with the share of the credit: see there; the rest is the
                  reading's
    credit        "all": every conversation gets its reading's advantage; "final": only the answer does
    normalise     "none": R − mean; "std": also divided by the group's standard deviation (GRPO)
    aggregate     "token": mean over all tokens of the update (DAPO); "sequence": first within each conversation (GRPO)
    old_logprobs  "sampled": those recorded while sampling; "recomputed": those of the training forward before the update
    dual_clip     c of the dual clip, 0 for none; kl: β of the k3 penalty; entropy: weight of an entropy bonus
    """

    reward: Scorer = "own"
    shaping: dict[str, float] = Field(default={})
    turns: dict[str, float] = Field(default={})
    credit: Credit = "all"
    normalise: Normalise = "none"
    aggregate: Aggregate = "token"
    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: float = Field(0.28, gt=0)
    dual_clip: float = Field(0.0, ge=0)
    kl: float = Field(1e-3, ge=0)
    entropy: float = Field(0.0, ge=0)
    old_logprobs: Literal["sampled", "recomputed"] = "sampled"

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
    """Optimisation. A batch is consumed in `updates` steps of AdamW; each in micro-batches of at most `batch_tokens`, whose
    gradients add up. The rate rises over `warmup` batches, then stays. A gradient norm above `explode` stops the run.
    `average` is the decay, per step, of the weight average that is validated and kept (0: none); sampling and updates go on
    with the weights themselves."""

    updates: Positive = 4
    batch_tokens: int = Field(16_384, ge=64)
    rate: float = Field(1e-6, gt=0)
    warmup: int = Field(0, ge=0)
    weight_decay: float = Field(0.01, ge=0)
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    clip: float = Field(1.0, gt=0)
    explode: float = Field(1e4, gt=0)
    average: Share = 0.0

    def rate_at(self, batch: int) -> float:
        """The learning rate of batch `batch`, from 0."""
        return self.rate * min(1.0, (batch + 1) / (self.warmup + 1))


class Documents(Part):
    """Samples of a `task` of the catalogue, made on the fly with its `options`, or of a `file`. `tokens`, the length of
    documents, is for those that are made. `reader` reads them, with `reader_options`; by default that of `rollout`."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]  # of a file and a folder of the run, too
    task: str | None = None
    file: Path | None = None
    tokens: Sequence[int] = ()
    options: dict[str, Any] = Field(default={})
    reader: str | None = None
    reader_options: dict[str, Any] = Field(default={})

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.task is None) == (self.file is None):
            raise ValueError("give either `task`, the name of a task, or `file`, a sample file")
        if (self.task is None) == bool(self.tokens):
            raise ValueError("`tokens` is the length of documents that are made: it goes with `task`, not with `file`")
        return self


class TaskMix(Documents):
    """Documents to train on, and how often; `tokens` is [shortest, longest]. An option that is a list means "one of these,
    at random"."""

    tokens: Some | tuple[()] = ()
    weight: Weight = Field(default=[(0.0, 1.0)])


class ValidationTask(Documents):
    """What is read on validation: `samples` documents of a task at each length, or a sample file."""

    tokens: tuple[Positive, ...] = ()
    samples: Positive = 64


class ValidationConfig(Part):
    """Readings of held-out documents every `every` batches, before the first and after the last: greedy, or sampled, where
    the engine takes seeds from the same random streams each time. The best mean score is kept as `best`; `patience`
    validations without a better one stop the run (0: never)."""

    every: Positive = 10
    seed: int = 1_000_003
    batch: Positive = 64
    patience: int = Field(0, ge=0)
    score: Scorer = "own"
    temperature: float = Field(0.0, ge=0, le=10)
    top_p: float = Field(1.0, gt=0, le=1)
    task: list[ValidationTask] = Field(default=[])

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
    """A run of reinforcement learning. `start` is "embedded" or the folder of a model."""

    start: str
    steps: Positive
    save_every: Positive = 10
    books: list[Path] = Field(default=[])
    rollout: RolloutConfig = RolloutConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    update: UpdateConfig = UpdateConfig()
    task: list[TaskMix] = Field(min_length=1)
    validation: ValidationConfig = ValidationConfig()
    cluster: ClusterConfig = ClusterConfig()

    @model_validator(mode="after")
    def _check(self) -> RlConfig:
        if any(part.task for part in self.task) and not self.books:
            raise ValueError("tasks that are made need `books`, texts to hide facts in, which no evaluation uses")
        names = [part.name for part in self.task]
        if len(set(names)) < len(names):
            raise ValueError(f"every [[task]] needs a name of its own, not {names}")
        trained = {part.file.resolve() for part in self.task if part.file is not None}
        if both := [part for part in self.validation.task if part.file is not None and part.file.resolve() in trained]:
            raise ValueError(f"{both[0].file} is trained on: validate on other samples")
        return self
