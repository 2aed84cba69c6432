"""The supervised trainer, for a warm start: next-token loss on the replies of perfect readings.

Everything a step reads is a function of the configuration and the step's number; everything it changes is in the
checkpoint. A run that was killed and resumed therefore writes the same metrics as one that was not (same machine, same
number of threads, CPU).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from torch.nn import functional

from memagent.errors import TrainingError
from memagent.models.open import model_folder
from memagent.profiles import load_profile
from memagent.tasks.samples import generator
from memagent.training.average import Average
from memagent.training.begin import make_repeatable, open_log
from memagent.training.checkpoints import Checkpoints
from memagent.training.config import Mixture, ReadingMixture, SftConfig
from memagent.training.data import Source, mixture_batch, open_source, step_batches
from memagent.training.log import RunLog
from memagent.training.metrics import Tally
from memagent.training.model import new_model
from memagent.training.optimizers import Optimizers
from memagent.training.policy import Policy
from memagent.training.rows import Batch


class Trainer:
    """Policy, optimizer, weight average and step counter, and what moves them on by one step."""

    def __init__(self, config: SftConfig, start: Path) -> None:
        self.config = config
        plan = config.schedule
        self.policy = Policy(start, config.policy)
        self.source = open_source(self.policy.tokenizer, config.books, load_profile(config.profile), "train")
        self.mixtures: list[Mixture | ReadingMixture] = [*config.mixture, *config.reading]
        self.average = Average(self.policy.parameters(), plan.average)
        self.optimizer = Optimizers(self.policy.causal, plan)
        self.step = 0
        self.tokens = 0
        self.best = -1.0

    def state(self) -> dict[str, Any]:
        """Everything that a step changes."""
        return {
            "parameters": self.policy.state(),
            "average": self.average.state(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "tokens": self.tokens,
            "best": self.best,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Undoes a stop. Raises TrainingError if the checkpoint is of another model."""
        self.policy.restore(state["parameters"])
        self.average.restore(state["average"])
        try:
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise TrainingError(f"the checkpoint does not fit this configuration: {error}") from error
        self.step, self.tokens, self.best = state["step"], state["tokens"], state["best"]

    def make_step(self, step: int) -> list[tuple[str, Batch]]:
        """The data of a step."""
        plan = self.config.schedule
        return step_batches(
            self.source,
            self.mixtures,
            seed=self.config.seed,
            step=step,
            steps=plan.steps,
            batches=plan.batches,
            batch_tokens=plan.batch_tokens,
        )

    def train_step(self, batches: list[tuple[str, Batch]]) -> Tally:
        """One optimizer step. Raises TrainingError when the loss or its gradient is not a number."""
        plan = self.config.schedule
        tally = Tally()
        with self.policy.training():
            for name, batch in batches:
                loss, part = batch_loss(self.policy, batch)
                if not math.isfinite(loss.item()):
                    raise TrainingError(
                        f"the loss of a batch of {name!r} is {loss.item()} at step {self.step}: resume with a lower rate"
                        " (--set schedule.rate=…)"
                    )
                (loss / len(batches)).backward()
                tally += part
                self.tokens += batch.tokens
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
def validate(trainer: Trainer, source: Source) -> dict[str, dict[str, float]]:
    """Per mixture: loss, token accuracy per kind and the share of rows that are right in every token (`row`), on words and
    books that training never sees, with the weights that are kept. The rows are the same every time."""
    result = {}
    with trainer.average.in_place():
        for number, mixture in enumerate(trainer.mixtures):
            tally = Tally()
            for index in range(trainer.config.validation_batches):
                rng = generator(trainer.config.seed, "validation", 1000 * number + index)
                batch = mixture_batch(source, rng, mixture, trainer.config.schedule.batch_tokens)
                tally += batch_loss(trainer.policy, batch)[1]
            result[mixture.name] = tally.summary()
    mean = sum(values["row"] for values in result.values()) / len(result)
    return {**result, "mean": {"row": mean}}


def run(
    config: SftConfig,
    out: Path,
    *,
    resume: bool,
    stop_after: int | None = None,
    console: Console | None = None,
    source: str = "",
) -> Trainer:
    """Trains to the end of the schedule, or `stop_after` steps. `source` as in RunLog. Raises TrainingError."""
    make_repeatable(config)
    start = model_folder(config.start) if config.start is not None else new_model(config, out / "start")
    trainer, checkpoints = Trainer(config, start), Checkpoints(out)
    held_out = open_source(trainer.policy.tokenizer, config.validation_books, load_profile(config.profile), "eval")
    resumed = resume and checkpoints.exist()
    if resumed:
        trainer.restore(checkpoints.load())
    last = min(config.schedule.steps, stop_after or config.schedule.steps)
    log = open_log(config, out, step=trainer.step if resumed else None, source=source, console=console)
    with log, ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(trainer.make_step, trainer.step)
        tally, began, tokens = Tally(), time.perf_counter(), trainer.tokens
        while trainer.step < last:
            batches = ahead.result()
            ahead = pool.submit(trainer.make_step, trainer.step + 1)
            tally += trainer.train_step(batches)
            step, end = trainer.step, trainer.step == last
            if step % config.log_every == 0 or end:
                rate = config.schedule.rate_at(step - 1)
                log.metrics(step, "train", {**tally.summary(), "tokens": trainer.tokens, "lr": rate})
                log.timing(step, {"update": time.perf_counter() - began}, {"update": trainer.tokens - tokens})
                tally, began, tokens = Tally(), time.perf_counter(), trainer.tokens
            better = False
            if step % config.validate_every == 0 or end:
                better = _validated(trainer, held_out, log)
                began, tokens = time.perf_counter(), trainer.tokens
            if step % config.save_every == 0 or better or end:
                checkpoints.save(step, trainer.save, trainer.state(), best=better)
    return trainer


def _validated(trainer: Trainer, source: Source, log: RunLog) -> bool:
    """Validates; returns whether no earlier weights got as many rows right."""
    result: Mapping[str, Mapping[str, float]] = validate(trainer, source)
    log.metrics(trainer.step, "validation", result)
    better = result["mean"]["row"] > trainer.best
    trainer.best = max(trainer.best, result["mean"]["row"])
    return better
