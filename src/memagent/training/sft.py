"""The supervised trainer, for a warm start: next-token loss on the replies of perfect readings.

Everything a step reads is a function of the configuration and the step's number; everything it changes is in the
checkpoint. A run that was killed and resumed therefore writes the same metrics as one that was not (same machine, same
number of threads, CPU).
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from memagent.errors import TrainingError
from memagent.models.open import model_folder
from memagent.profiles import load_profile
from memagent.tasks.samples import generator
from memagent.training.ahead import made_ahead
from memagent.training.average import Average
from memagent.training.checkpoints import Checkpoints
from memagent.training.config import MEAN, Mixture, ReadingMixture, SftConfig
from memagent.training.data import StepMaker, mixture_batch, open_source
from memagent.training.graphs import Graphs
from memagent.training.growth import write_deeper
from memagent.training.helpers import Helpers, dealt
from memagent.training.inputs import measured_on
from memagent.training.log import RunLog
from memagent.training.metrics import Tally
from memagent.training.model import new_model, trained_as
from memagent.training.optimizers import Optimizers
from memagent.training.policy import Policy
from memagent.training.rows import Batch, reply_tokens
from memagent.training.run import Launch, begun


@dataclass(slots=True)
class Part:
    """What came of a share of a step's batches: counts, and the name of a batch whose loss is no number, with the loss."""

    tally: Tally = field(default_factory=Tally)
    failed: tuple[str, float] | None = None


class Learner:
    """The policy as one process computes with it: the gradient of batches."""

    def __init__(self, config: SftConfig, start: Path) -> None:
        self.policy, self._reply_tokens = Policy(start, config.policy), config.schedule.reply_tokens
        self._graphs = Graphs(self.policy, config.graphs) if config.graphs else None

    @property
    def parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        return self.policy.named_parameters()

    def backward(self, share: Sequence[tuple[str, Batch, float]]) -> Part:
        """Adds the gradient of (name, batch, weight of its loss) to that of the parameters."""
        part = Part()
        if self._graphs is not None:
            part.tally = self._graphs.backward(
                [(batch, weight * self._scale(reply_tokens(batch))) for _, batch, weight in share]
            )
            if not math.isfinite(part.tally.loss):
                part.failed = ", ".join(sorted({name for name, _, _ in share})), part.tally.loss
            return part
        with self.policy.training():
            for name, batch, weight in share:
                loss, counted = batch_loss(self.policy, batch)
                if not math.isfinite(loss.item()):
                    part.failed = name, loss.item()
                    return part
                (loss * self._scale(sum(counted.total)) * weight).backward()
                part.tally += counted
        return part

    def _scale(self, counted: int) -> float:
        """What the mean loss of a batch with so many reply tokens is multiplied by."""
        return counted / self._reply_tokens if self._reply_tokens else 1.0


class Trainer:
    """Policy, optimizer, weight average and step counter, and what moves them on by one step."""

    def __init__(self, config: SftConfig, start: Path) -> None:
        self.config = config
        plan = config.schedule
        self.worker = Learner(config, start)
        self.policy = self.worker.policy
        self.make_step = StepMaker(config, start)
        source = self.make_step.opened()  # raises what is wrong with the books
        if self.policy.window is not None:
            config.check_rows(self.policy.window, source.worded("update"))
        self.helpers = Helpers(config.processes - 1, self.worker, Learner, config, start, threads=torch.get_num_threads())
        profile = load_profile(config.profile)
        self.policy.reads_as(trained_as(config.profile))
        self.held_out = open_source(self.policy.tokenizer, config.validation_books, profile, "eval")
        self.mixtures: list[Mixture | ReadingMixture] = [*config.mixture, *config.reading]
        self.average = Average(self.policy.parameters(), plan.average)
        self.optimizer = Optimizers(self.policy.causal, plan, keep_gradients=config.graphs > 0)
        self.step = 0
        self.tokens = 0
        self.best, self.best_loss = -1.0, math.inf
        self.tally = Tally()  # since the metrics were last logged

    @property
    def scored(self) -> str:
        """What validations score: the rows of the mixtures, and the books that they are made of."""
        config = self.config
        rows = [mixture.model_copy(update={"weight": None}) for mixture in self.mixtures]
        drawn = [config.seed, config.validation_batches, config.schedule.batch_tokens]
        return measured_on([rows, drawn, asdict(load_profile(config.profile)), config.validation_books])

    def forget_scores(self) -> None:
        """The next validation is the first that counts."""
        self.best, self.best_loss = -1.0, math.inf

    def state(self) -> dict[str, Any]:
        """Everything that a step changes."""
        return {
            "parameters": self.policy.state(),
            "average": self.average.state(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "tokens": self.tokens,
            "best": self.best,
            "best_loss": self.best_loss,
            "tally": asdict(self.tally),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Undoes a stop."""
        self.policy.restore(state["parameters"])
        self.average.restore(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.tokens, self.best = state["step"], state["tokens"], state["best"]
        self.best_loss = state.get("best_loss", math.inf)  # runs of versions before this one did not note it
        self.tally = Tally(**state.get("tally", {}))

    def train_step(self, batches: list[tuple[str, Batch]]) -> Tally:
        """One optimizer step. Raises TrainingError when the loss or its gradient is not a number."""
        plan, tally = self.config.schedule, Tally()
        hands = dealt([batch.tokens for _, batch in batches], self.helpers.processes)
        shares = [[(*batches[place], 1 / len(batches)) for place in hand] for hand in hands]
        for part in self.helpers.each(Learner.backward, shares):
            if part.failed:
                name, loss = part.failed
                raise TrainingError(
                    f"the loss of a batch of {name!r} is {loss} at step {self.step}: resume with a lower rate (--set"
                    " schedule.rate=…)"
                )
            tally += part.tally
        self.helpers.gather(len(shares) - 1)
        self.tokens += sum(batch.tokens for _, batch in batches)
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), plan.clip)
        self.optimizer.step(plan.rate_at(self.step))
        self.average.follow()
        self.step += 1
        return tally

    def save(self, folder: Path) -> None:
        """Writes the weights that are kept as a model folder."""
        with self.average.in_place():
            self.policy.save(folder)


def batch_loss(policy: Policy, batch: Batch) -> tuple[Tensor, Tally]:
    """Mean loss over the reply tokens of a batch, and its counts per kind."""
    kind_NR = torch.tensor(batch.kind)
    keep_NR = kind_NR >= 0
    logits_KV = policy.logits(batch)
    target_K = torch.tensor(batch.target)[keep_NR].to(logits_KV.device)
    loss_K = functional.cross_entropy(logits_KV, target_K, reduction="none")
    right_NR = torch.ones_like(keep_NR)
    right_NR[keep_NR] = (logits_KV.argmax(-1) == target_K).cpu()
    return loss_K.mean(), Tally.count(loss_K.detach().cpu(), right_NR, kind_NR)


@torch.no_grad()
def validate(trainer: Trainer) -> dict[str, dict[str, float]]:
    """Per mixture: loss, token accuracy per kind and the share of rows that are right in every token (`row`), on words and
    books that training never sees, with the weights that are kept. The rows are the same every time."""
    result = {}
    with trainer.average.in_place():
        for number, mixture in enumerate(trainer.mixtures):
            tally = Tally()
            for index in range(trainer.config.validation_batches):
                rng = generator(trainer.config.seed, "validation", 1000 * number + index)
                batch = mixture_batch(trainer.held_out, rng, mixture, trainer.config.schedule.batch_tokens)
                tally += batch_loss(trainer.policy, batch)[1]
            result[mixture.name] = tally.summary()
    mean = sum(values["row"] for values in result.values()) / len(result)
    return {**result, MEAN: {"row": mean}}


def run(config: SftConfig, launch: Launch) -> Trainer:
    """Trains to the end of the schedule, or `launch.stop_after` steps. Raises TrainingError."""
    steps = config.schedule.steps
    with begun(config, launch, steps, lambda: _new(config, launch)) as run, ExitStack() as held:
        trainer, log = run.trainer, run.log
        held.callback(trainer.helpers.close)
        steps_ahead = made_ahead(trainer.make_step, trainer.step, run.last, config.workers)
        ahead = held.enter_context(closing(steps_ahead))
        began, tokens = time.perf_counter(), trainer.tokens
        while not run.ended:
            trainer.tally += trainer.train_step(next(ahead))
            step = trainer.step
            if run.is_due(config.log_every):
                rate = config.schedule.rate_at(step - 1)
                log.metrics(step, "train", {**trainer.tally.summary(), "tokens": trainer.tokens, "lr": rate})
                log.timing(step, {"update": time.perf_counter() - began}, {"update": trainer.tokens - tokens})
                trainer.tally, began, tokens = Tally(), time.perf_counter(), trainer.tokens
            better = False
            if run.is_due(config.validate_every):
                better = _validated(trainer, log)
                began, tokens = time.perf_counter(), trainer.tokens
            if better or run.is_due(config.save_every):
                run.save(best=better)
    return trainer


def _new(config: SftConfig, launch: Launch) -> Trainer:
    if config.start is None:
        start = launch.out / "start"
        if not launch.resume:
            shutil.rmtree(start, ignore_errors=True)  # of a run that could not begin
        return Trainer(config, new_model(config, start))
    start = model_folder(config.start)
    if config.stack:
        start, shallow = launch.out / "deeper", start
        if not Checkpoints(launch.out).exist():
            shutil.rmtree(start, ignore_errors=True)  # of a run that could not begin
            write_deeper(shallow, config.stack, start)
    return Trainer(config, start)


def _validated(trainer: Trainer, log: RunLog) -> bool:
    """Validates; returns whether no earlier weights got as many rows right, or as many with a lower loss."""
    result: Mapping[str, Mapping[str, float]] = validate(trainer)
    log.metrics(trainer.step, "validation", result)
    row = result[MEAN]["row"]
    loss = sum(values["loss"] for name, values in result.items() if name != MEAN) / (len(result) - 1)
    better = (row, -loss) > (trainer.best, -trainer.best_loss)
    if better:
        trainer.best, trainer.best_loss = row, loss
    return better
