"""Readings under the policy, as trajectories: the lockstep driver over all readings of all groups at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from memagent.core import Completion, Plan, make_reader, template_tokens
from memagent.driver import Transcript, read_batch
from memagent.errors import ConfigError, ModelError
from memagent.models.open import OpenModel
from memagent.settings import Settings, make_plan, make_settings
from memagent.suite_scoring import meant, own_score
from memagent.tasks.samples import Sample
from memagent.training.credit import Conversation, Trajectory, has_signal, turns_have_signal
from memagent.training.curriculum import Curriculum
from memagent.training.rl_config import AlgorithmConfig, Documents, RlConfig, RolloutConfig, ValidationConfig
from memagent.training.shaping import holds, shaped, turn_rewards

_DRAWN = 16  # samples of a step, to look at before a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A finished reading of a sample. `memories` are those after each update, the last one is what the answer saw."""

    sample: Sample
    name: str
    trajectory: Trajectory
    answer: str
    memories: tuple[str, ...]
    truncated: int  # replies that were cut at their budget
    skipped: float = 0.0  # the share of turns that left the memory as it was with the short form


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The readings of one sample. `failed` is how many of them have no answer; such a group is not trained on."""

    readings: tuple[Reading, ...]
    failed: int = 0

    @property
    def trajectories(self) -> list[Trajectory]:
        return [reading.trajectory for reading in self.readings]

    @property
    def rewards(self) -> list[float]:
        return [one.reward for one in self.trajectories]

    @property
    def kept(self) -> bool:
        """Whether there is something to learn: all have an answer, and their rewards or those of their turns differ."""
        return not self.failed and (has_signal(self.rewards) or turns_have_signal(self.trajectories))


def roll_out(
    samples: Sequence[tuple[str, Sample]],
    size: int,
    opened: OpenModel,
    settings: Mapping[str, Settings],
    algorithm: AlgorithmConfig,
    seed: str,
    numbers: Sequence[int] | None = None,
) -> list[Group]:
    """`size` readings of each (name, sample), with the settings of that name, all in lockstep. Every reading draws from a
    stream of its own: the same seed gives the same readings, up to the rounding of batches. `numbers` are those of the
    samples in their batch, where they are a part of it."""
    plans = []
    for number, (name, sample) in zip(numbers or range(len(samples)), samples, strict=True):
        plan = make_plan(sample.document, sample.question, settings[name], opened)
        for member in range(size):
            plans.append(with_stream(plan, seed, number, member))
    results = read_batch(plans, opened.engine)
    groups = []
    for number, (name, sample) in enumerate(samples):
        mine, rounds = results[number * size : (number + 1) * size], rounds_of(settings[name])
        readings = [
            as_reading(name, sample, result, algorithm, rounds) for result in mine if isinstance(result, Transcript)
        ]
        groups.append(Group(readings=tuple(readings), failed=sum(isinstance(result, ModelError) for result in mine)))
    return groups


def curriculum_of(config: RlConfig, opened: OpenModel) -> Curriculum:
    """What the batches of a run are drawn from."""
    budget = policy_settings(config, opened, config.rollout).budgets.question
    tokenizer = opened.engine.tokenizer
    return Curriculum(config.task, config.books, tokenizer, config.seed, config.steps, question_tokens=budget)


def settings_by_name(
    config: RlConfig, opened: OpenModel, drawn: RolloutConfig | ValidationConfig, parts: Sequence[Documents]
) -> dict[str, Settings]:
    """How the documents of each part are read, by its name."""
    return {part.name: policy_settings(config, opened, drawn, part) for part in parts}


def plans_of_run(config: RlConfig, opened: OpenModel, mix: Curriculum) -> list[Plan]:
    """Plans of readings of what is drawn at the first, the middle and the last step. Raises what is wrong with the mix, and
    ConfigError for a question of a file that is longer than its budget, whenever it would be drawn."""
    settings = settings_by_name(config, opened, config.rollout, config.task)
    steps = sorted({0, config.steps // 2, config.steps - 1})
    drawn = [one for step in steps for one in mix.draw(step, 0, _DRAWN)]
    plans = [make_plan(sample.document, sample.question, settings[name], opened) for name, sample in drawn]
    check_questions(mix.from_files(), settings, opened)
    return plans


def check_questions(samples: Iterable[tuple[str, Sample]], settings: Mapping[str, Settings], opened: OpenModel) -> None:
    """Raises ConfigError for a question that is longer than the budget of its part."""
    for name, sample in samples:
        budget = settings[name].budgets.question
        if (length := opened.engine.tokenizer.count(sample.question)) > budget:
            raise ConfigError(
                f"task {name!r}: the question of sample {sample.id} has {length:,} tokens, the question budget is"
                f" {budget:,}: take other samples, or raise rollout.question_tokens"
            )


def wording_tokens(config: RlConfig, opened: OpenModel) -> int:
    """Most tokens that a prompt of the run's readers has around its fields."""
    chosen = settings_by_name(config, opened, config.rollout, config.task).values()
    held_out = settings_by_name(config, opened, config.validation, config.validation.task).values()
    engine = opened.engine
    return max(
        template_tokens(
            one.profile,
            engine.tokenizer,
            engine.overhead,
            make_reader(one.reader).templates,
            question=one.budgets.question,
        )
        for one in (*chosen, *held_out)
    )


def policy_settings(
    config: RlConfig, opened: OpenModel, drawn: RolloutConfig | ValidationConfig, part: Documents | None = None
) -> Settings:
    """How readings of a run are made: with the budgets of the configuration, or of the model; `drawn` says the sampling,
    and `part` may name a reader."""
    chosen = config.rollout
    reader = (part and part.reader) or chosen.reader
    options = chosen.reader_options if reader == chosen.reader else {}
    return make_settings(
        opened,
        model="policy",
        profile=chosen.profile,
        question_tokens=chosen.question_tokens,
        chunk_tokens=chosen.chunk_tokens,
        memory_tokens=chosen.memory_tokens,
        answer_tokens=chosen.answer_tokens,
        reasoning_tokens=chosen.reasoning_tokens,
        temperature=drawn.temperature,
        top_p=drawn.top_p,
        seed=config.seed,
        rules=chosen.rules,
        reader=reader,
        reader_options={**options, **(part.reader_options if part else {})},
    )


def with_stream(plan: Plan, seed: str, number: int, member: int) -> Plan:
    """The plan with a random stream of its own: that of member `member` of group `number`."""
    return replace(plan, sampling=plan.sampling.own(f"{seed}/{number}/{member}"))


def retention(readings: Sequence[Reading]) -> tuple[int, int]:
    """Over all updates after the one that noted it: how often a needed fact was still noted, and how often it could be."""
    kept = total = 0
    for reading in readings:
        values = {fact.value for fact in reading.sample.facts if fact.needed and fact.value}
        for before, after in pairwise(reading.memories):
            noted = [value for value in values if holds(before, value)]
            total += len(noted)
            kept += sum(holds(after, value) for value in noted)
    return kept, total


def rounds_of(settings: Settings) -> int:
    """How many rounds a reading may have; 1 for a reader without rounds."""
    return int(settings.reader_options.get("rounds", 1))


def as_reading(
    name: str,
    sample: Sample,
    transcript: Transcript,
    algorithm: AlgorithmConfig,
    rounds: int = 1,
) -> Reading:
    """A finished reading: its conversations with the tokens that were sampled, and its rewards."""
    scorer = meant(algorithm.reward, sample.scorer)
    score = own_score(scorer, transcript.answer, sample.answers, sample.mode, sample.meta)
    total = shaped(transcript, sample, score, algorithm.shaping, rounds)
    turns = turn_rewards(transcript, sample, algorithm.turns)
    return Reading(
        sample=sample,
        name=name,
        trajectory=Trajectory(tuple(_conversations(record.completion for record in transcript.records)), total, turns),
        answer=transcript.answer,
        memories=tuple(record.memory for record in transcript.records[:-1]),
        truncated=sum(record.completion.finish == "length" for record in transcript.records),
        skipped=sum(record.outcome == "skipped" for record in transcript.records) / len(transcript.records),
    )


def _conversations(completions: Iterator[Completion]) -> Iterator[Conversation]:
    for one in completions:
        assert one.prompt_ids is not None
        assert one.token_ids is not None
        assert one.logprobs is not None
        yield Conversation(one.prompt_ids, one.token_ids, one.logprobs)
