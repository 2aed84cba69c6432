"""Multi-Conv DAPO on one machine: sample readings, judge their answers, credit every conversation, update; again.

Everything a batch reads is a function of the configuration and its number; everything it changes is in the checkpoint. A
run that was killed and resumed therefore writes the same metrics as one that was not (same machine, same number of threads,
CPU).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from memagent.models.open import OpenModel
from memagent.tasks.lazy_text import LazyText
from memagent.tasks.samples import Sample, generator
from memagent.training.average import Average
from memagent.training.credit import CreditedRow, credits, expand, merge, parts, weigh
from memagent.training.helpers import Helpers, dealt
from memagent.training.inputs import measured_on
from memagent.training.log import RunLog
from memagent.training.loss import Statistics
from memagent.training.model import trained_as
from memagent.training.optimizers import restore
from memagent.training.reader_worker import ReaderWorker, Rollout
from memagent.training.rl_config import RlConfig
from memagent.training.rollout import (
    Group,
    Reading,
    check_questions,
    curriculum_of,
    plans_of_run,
    retention,
    settings_by_name,
)
from memagent.training.run import Launch, begun
from memagent.training.update import Step, Updater
from memagent.training.validation import Validation, asked_in_both, mean_score, samples_of_files


@dataclass(slots=True)
class Batch:
    """What was sampled for a batch: all groups, those that are kept, and how often more were sampled in place of others."""

    groups: list[Group] = field(default_factory=list)
    kept: list[Group] = field(default_factory=list)
    resampled: int = 0

    @property
    def readings(self) -> list[Reading]:
        return [reading for group in self.groups for reading in group.readings]

    @property
    def tokens(self) -> int:
        """Tokens that were sampled from or sampled: prompts and replies of every conversation."""
        conversations = [one for reading in self.readings for one in reading.trajectory.conversations]
        return sum(len(one.prompt) + len(one.reply) for one in conversations)


class Trainer:
    """The policy and what moves it on by one batch."""

    def __init__(self, config: RlConfig, out: Path) -> None:
        self.config = config
        self.worker = ReaderWorker(config)
        self.policy = self.worker.policy
        opened = self.opened(0)
        self.tokenizer = opened.engine.tokenizer
        self.curriculum = curriculum_of(config, opened)
        plans_of_run(config, opened, self.curriculum)  # raises what is wrong before anything is written
        held_out = settings_by_name(config, opened, config.validation, config.validation.task)
        check_questions(samples_of_files(config.validation.task), held_out, opened)
        self.notices = asked_in_both(config.task, config.validation.task)
        self._read_by = {name: one.to_json() | {"identity": "", "window": None} for name, one in held_out.items()}
        reads = next(iter(settings_by_name(config, opened, config.rollout, config.task).values()))
        self.policy.reads_as(trained_as(reads.profile.name, asdict(reads.budgets)))
        self.validation = Validation(config.validation, out / "validation", self.tokenizer)
        check_questions(self.validation.made(), held_out, opened)
        self.helpers = Helpers(config.processes - 1, self.worker, ReaderWorker, config, threads=torch.get_num_threads())
        self.updater = Updater(self.worker, config.update, out / "failed.pt", self.helpers)
        self.average = Average(self.policy.parameters(), config.update.average)
        self.step = 0
        self.best = -1.0
        self.waited = 0

    def opened(self, step: int) -> OpenModel:
        """The policy as an engine that readings run on."""
        return self.worker.opened(step)

    def sample(self) -> Batch:
        """Rolls out groups until enough of them carry a signal, or the limit is reached (dynamic sampling)."""
        chosen, batch = self.config.rollout, Batch()
        for attempt in range(1 + chosen.resample):
            samples = self.curriculum.draw(self.step, attempt, chosen.prompts)
            groups = self._rolled_out(samples, f"{self.config.seed}/{self.step}/{attempt}")
            batch.groups += groups
            batch.resampled += attempt > 0
            batch.kept += [group for group in groups if group.kept]
            if len(batch.kept) >= chosen.prompts:
                break
        batch.kept = batch.kept[: chosen.prompts]
        return batch

    def _rolled_out(self, samples: Sequence[tuple[str, Sample]], seed: str) -> list[Group]:
        """A group of readings for each sample, in their order, by all processes."""
        alone = self.helpers.processes == 1
        numbered = [(number, name, sample if alone else _sendable(sample)) for number, (name, sample) in enumerate(samples)]
        hands = dealt([len(sample.document) for _, sample in samples], self.helpers.processes)
        shares = [Rollout(self.step, seed, [numbered[place] for place in hand]) for hand in hands]
        found = zip(hands, self.helpers.each(ReaderWorker.roll_out, shares), strict=True)
        by_place = {place: group for hand, groups in found for place, group in zip(hand, groups, strict=True)}
        return [by_place[place] for place in range(len(samples))]

    def learn(self, batch: Batch) -> list[Step]:
        """The optimizer steps of a batch: a fixed number, counted in readings, however many conversations they have."""
        algorithm = self.config.algorithm
        groups = list(batch.kept)
        generator(self.config.seed, "order", self.step).shuffle(groups)
        trajectories = [one for group in groups for one in group.trajectories]
        share = sum(algorithm.turns.values())
        credit = [values for group in groups for values in credits(group.trajectories, algorithm.normalise, share)]
        minis: list[list[CreditedRow]] = []
        for start, end in parts(trajectories, self.config.update.updates):
            rows = expand(trajectories[start:end], credit[start:end], algorithm.credit)
            minis.append(weigh(merge(rows), algorithm.aggregate))
        old = [self.updater.recompute(rows) if algorithm.old_logprobs == "recomputed" else None for rows in minis]
        rate, steps = self.config.update.rate_at(self.step), []
        for rows, known in zip(minis, old, strict=True):
            steps.append(self.updater.step(rows, rate, known))
            self.average.follow()
        return steps

    def validate(self) -> dict[str, dict[str, float]]:
        """Readings of the held-out samples with the weights that are kept."""
        opened, drawn = self.opened(self.step), self.config.validation
        settings = settings_by_name(self.config, opened, drawn, drawn.task)
        with self.policy.computing(), self.average.in_place():
            return self.validation.run(self.step, opened, settings)

    def save(self, folder: Path) -> None:
        """Writes the weights that are kept as a model folder."""
        with self.average.in_place():
            self.policy.save(folder)

    @property
    def scored(self) -> str:
        """What validations score: their samples, and how they are read and judged."""
        validation = self.config.validation
        return measured_on([validation.seed, validation.score, validation.task, self._read_by])

    def forget_scores(self) -> None:
        """The next validation is the first that counts, for `best` and for the patience of the run."""
        self.best, self.waited = -1.0, 0

    def state(self) -> dict[str, Any]:
        """Everything that a batch changes."""
        return {
            "parameters": self.policy.state(),
            "average": self.average.state(),
            "optimizer": self.updater.optimizer.state_dict(),
            "step": self.step,
            "best": self.best,
            "waited": self.waited,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Undoes a stop."""
        self.policy.restore(state["parameters"])
        self.average.restore(state["average"])
        restore(self.updater.optimizer, state["optimizer"])
        self.step, self.best, self.waited = state["step"], state["best"], state["waited"]


def _sendable(sample: Sample) -> Sample:
    """The sample with the text of its document alone, not with the book that it shares with others."""
    return replace(sample, document=LazyText([str(sample.document)]))


def run(config: RlConfig, launch: Launch) -> Trainer:
    """Trains to the last batch, `launch.stop_after` batches, or until validation stops improving. Raises TrainingError."""
    with begun(config, launch, config.steps, lambda: Trainer(config, launch.out)) as run:
        trainer = run.trainer
        for notice in trainer.notices:
            run.log.say(notice)
        with closing(trainer.helpers):
            if trainer.validation and not run.resumed:
                _validated(trainer, run.log)
                run.save(best=True)
            while not run.ended and not _exhausted(trainer):
                _one_batch(trainer, run.log)
                better = _validated(trainer, run.log) if run.is_due(config.validation.every) else False
                if better or _exhausted(trainer) or run.is_due(config.save_every):
                    run.save(best=better)
            if _exhausted(trainer) and not run.ended:
                run.log.ended(trainer.step, f"no better score in {trainer.waited} validations: the run ends here")
    return trainer


def _one_batch(trainer: Trainer, log: RunLog) -> None:
    began = time.perf_counter()
    batch = trainer.sample()
    sampled = time.perf_counter()
    steps = trainer.learn(batch)
    trainer.step += 1
    log.metrics(trainer.step, "train", summary(trainer, batch, steps))
    log.timing(
        trainer.step,
        {"rollout": sampled - began, "update": time.perf_counter() - sampled},
        {"rollout": batch.tokens, "update": sum(step.tokens for step in steps)},
    )


def _validated(trainer: Trainer, log: RunLog) -> bool:
    """Validates if there is something to validate on. Returns whether no earlier score was as good."""
    if not trainer.validation:
        return False
    began = time.perf_counter()
    result = trainer.validate()
    log.metrics(trainer.step, "validation", result)
    log.timing(trainer.step, {"validation": time.perf_counter() - began}, {})
    better = mean_score(result) > trainer.best
    trainer.best = max(trainer.best, mean_score(result))
    trainer.waited = 0 if better else trainer.waited + 1
    return better


def _exhausted(trainer: Trainer) -> bool:
    patience = trainer.config.validation.patience
    return bool(patience) and trainer.waited >= patience


def summary(trainer: Trainer, batch: Batch, steps: Sequence[Step]) -> dict[str, float]:
    """The metrics of one batch. Rewards are over everything sampled, groups that were left out included."""
    readings, groups = batch.readings, batch.groups
    by_name: defaultdict[str, list[float]] = defaultdict(list)
    for reading in readings:
        by_name[reading.name].append(reading.trajectory.reward)
    kept, total = retention(readings)
    count = trainer.tokenizer.count
    statistics = Statistics()
    for step in steps:
        statistics += step.statistics
    return {
        "reward": _mean([value for values in by_name.values() for value in values]),
        "groups": len(groups),
        "kept": len(batch.kept),
        "surplus": sum(group.kept for group in groups) - len(batch.kept),
        "no_signal": sum(not group.failed and not group.kept for group in groups),
        "failed": sum(group.failed for group in groups),
        "resampled": batch.resampled,
        "loss": _mean([step.loss for step in steps]),
        "grad_norm": _mean([step.grad_norm for step in steps]),
        "updates": len(steps),
        "lr": trainer.config.update.rate_at(trainer.step - 1),
        **statistics.mean(),
        "memory_tokens": _mean([count(reading.memories[-1]) for reading in readings if reading.memories]),
        **({"retention": kept / total} if total else {}),  # nothing was noted, so nothing could be kept
        "truncated": _mean([float(reading.truncated > 0) for reading in readings]),
        "skipped": _mean([reading.skipped for reading in readings]),
        **{f"reward/{name}": _mean(values) for name, values in sorted(by_name.items())},
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
