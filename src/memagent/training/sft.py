"""The supervised trainer: next-token loss on replies, one process, resumable to the bit.

    python -m memagent.training.sft CONFIG --out FOLDER [--resume] [--stop-after STEP]

Everything a step reads is a function of the configuration and the step's number; everything it changes is in the
checkpoint. A run that was killed and resumed therefore writes the same metrics as one that was not (on the same machine and
number of threads). FOLDER receives config.toml, metrics.jsonl and checkpoint.pt.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import Lfm2ForCausalLM

from memagent.errors import TrainingError
from memagent.tasks.samples import generator
from memagent.training.checkpoint import load_checkpoint, save_checkpoint
from memagent.training.config import Schedule, TrainConfig, load_config
from memagent.training.data import Mixture, Source, mixture_batch, open_source, step_batches
from memagent.training.metrics import Tally
from memagent.training.model import build_model, load_model, reply_hidden
from memagent.training.rows import Batch


class Trainer:
    """Model, optimizer, weight average and step counter, and what moves them on by one step."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.source = open_source(config.tokenizer_folder, config.books, config.profile, "train")
        self.mixtures: list[Mixture] = [part.mixture() for part in (*config.mixture, *config.reading)]
        if config.start is not None:
            self.model: Any = load_model(config.start)
        else:
            assert config.model is not None
            self.model = build_model(config.model, self.source.tokenizer.get_vocab_size(), config.seed)
        self.average = copy.deepcopy(self.model)
        self.optimizer = Optimizers(self.model, config.schedule)
        self.step = 0
        self.tokens = 0

    def state(self) -> dict[str, Any]:
        """Everything that a step changes."""
        return {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": torch.get_rng_state(),
            "step": self.step,
            "tokens": self.tokens,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Undoes a stop. Raises TrainingError if the checkpoint is of another model."""
        try:
            self.model.load_state_dict(state["model"])
            self.average.load_state_dict(state["average"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise TrainingError(f"the checkpoint does not fit this configuration: {error}") from error
        torch.set_rng_state(state["rng"])
        self.step, self.tokens = state["step"], state["tokens"]

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
        """One optimizer step. Raises TrainingError when the loss is not a number."""
        plan = self.config.schedule
        tally = Tally()
        for _, batch in batches:
            loss, part = batch_loss(self.model, batch, plan.bf16)
            if not math.isfinite(loss.item()):
                raise TrainingError(
                    f"the loss is {loss.item()} at step {self.step}: lower schedule.rate, or resume earlier"
                )
            (loss / len(batches)).backward()
            tally += part
            self.tokens += batch.tokens
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), plan.clip)
        self.optimizer.step(plan.rate_at(self.step))
        decay = min(plan.average, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - decay)
        self.step += 1
        return tally


class Optimizers:
    """Muon for the matrices inside the layers, AdamW for embeddings, convolution kernels and norms."""

    def __init__(self, model: Lfm2ForCausalLM, plan: Schedule) -> None:
        inner = [value for name, value in model.named_parameters() if value.dim() == 2 and "embed" not in name]
        ids = {id(value) for value in inner}
        outer = [value for value in model.parameters() if id(value) not in ids]
        self.parts: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(outer, lr=plan.rate, betas=plan.betas, weight_decay=0.0, fused=True)
        ]
        if plan.muon:
            self.parts.append(
                torch.optim.Muon(
                    inner, lr=plan.rate, weight_decay=plan.weight_decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"
                )
            )
        else:
            self.parts[0].add_param_group({"params": inner, "weight_decay": plan.weight_decay})
        self.factors = [1.0, plan.muon]

    def step(self, rate: float) -> None:
        """One step at that learning rate; gradients are dropped."""
        for factor, part in zip(self.factors, self.parts, strict=False):
            for group in part.param_groups:
                group["lr"] = rate * factor
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


def batch_loss(model: Lfm2ForCausalLM, batch: Batch, bf16: bool) -> tuple[Tensor, Tally]:
    """Mean loss over the reply tokens of a batch, and its counts per kind."""
    kind_NR = torch.tensor(batch.kind)
    keep = kind_NR >= 0
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        hidden_NRD = reply_hidden(model, torch.tensor(batch.ids), torch.tensor(batch.at))
        logits_KV = functional.linear(hidden_NRD[keep], model.model.embed_tokens.weight)
    target_K = torch.tensor(batch.target)[keep]
    loss_K = functional.cross_entropy(logits_KV.float(), target_K, reduction="none")
    right_NR = torch.ones_like(keep)
    right_NR[keep] = logits_KV.argmax(-1) == target_K
    return loss_K.mean(), Tally.count(loss_K.detach(), right_NR, kind_NR)


@torch.no_grad()
def validate(trainer: Trainer, source: Source) -> dict[str, dict[str, float]]:
    """Per mixture: loss, token accuracy per kind and the share of rows that are right in every token (`row`), on words and
    books that training never sees, with the averaged weights. The rows are the same every time."""
    result = {}
    for number, mixture in enumerate(trainer.mixtures):
        tally = Tally()
        for index in range(trainer.config.validation_batches):
            rng = generator(trainer.config.seed, "validation", 1000 * number + index)
            batch = mixture_batch(source, rng, mixture.recipe, trainer.config.schedule.batch_tokens)
            tally += batch_loss(trainer.average, batch, trainer.config.schedule.bf16)[1]
        result[mixture.name] = tally.summary()
    return result


def run(config: TrainConfig, out: Path, *, resume: bool, stop_after: int | None = None) -> Trainer:
    """Trains to the end of the schedule, or `stop_after` steps. Raises TrainingError for an unusable folder."""
    checkpoint, metrics = out / "checkpoint.pt", out / "metrics.jsonl"
    if checkpoint.exists() and not resume:
        raise TrainingError(f"{out} holds a run: continue it with --resume, or choose another folder")
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    trainer = Trainer(config)
    held_out = open_source(config.tokenizer_folder, config.validation_books, config.profile, "eval")
    if resume and checkpoint.exists():
        trainer.restore(load_checkpoint(checkpoint))
    _forget_after(metrics, trainer.step)
    last = min(config.schedule.steps, stop_after or config.schedule.steps)
    with ThreadPoolExecutor(1) as pool, metrics.open("a", encoding="utf-8") as log:
        ahead = pool.submit(trainer.make_step, trainer.step)
        tally, began, tokens = Tally(), time.perf_counter(), trainer.tokens
        while trainer.step < last:
            batches = ahead.result()
            ahead = pool.submit(trainer.make_step, trainer.step + 1)
            tally += trainer.train_step(batches)
            step, end = trainer.step, trainer.step == last
            if step % config.log_every == 0 or end:
                rate = (trainer.tokens - tokens) / (time.perf_counter() - began)
                lr = config.schedule.rate_at(step - 1)
                _write(
                    log, {"step": step, "tokens": trainer.tokens, "lr": lr, "train": tally.summary()}, f"{rate:,.0f} tok/s"
                )
                tally, began, tokens = Tally(), time.perf_counter(), trainer.tokens
            if step % config.validate_every == 0 or end:
                _write(log, {"step": step, "validation": validate(trainer, held_out)}, "")
                began, tokens = time.perf_counter(), trainer.tokens
            if step % config.save_every == 0 or end:
                save_checkpoint(trainer.state(), checkpoint)
    return trainer


def _write(log: Any, record: dict[str, Any], note: str) -> None:
    """One metrics line to the file and the console. Wall time is never in the file: equal runs give equal files."""
    log.write(json.dumps(record) + "\n")
    log.flush()
    if "train" in record:
        values = " ".join(f"{name} {value:.4f}" for name, value in record["train"].items())
        print(f"{record['step']:6d} {record['tokens'] / 1e6:7.2f}M {values} {note}", flush=True)
    else:
        for name, part in record["validation"].items():
            print(f"       {name:8s} " + " ".join(f"{key} {value:.4f}" for key, value in part.items()), flush=True)


def _forget_after(metrics: Path, step: int) -> None:
    """Drops the lines written after the checkpoint: those steps are done again."""
    if metrics.exists():
        lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
        metrics.write_text("".join(kept), encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """The command. Errors of configuration or training are printed in one line; exit status 1."""
    parser = argparse.ArgumentParser(description="Train the embedded model.")
    parser.add_argument("config", type=Path, help="TOML file")
    parser.add_argument("--out", type=Path, required=True, help="folder for metrics and checkpoints")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out")
    parser.add_argument("--stop-after", type=int, help="stop at this step of the schedule")
    options = parser.parse_args(arguments)
    try:
        config = load_config(options.config)
        options.out.mkdir(parents=True, exist_ok=True)
        if options.resume or not (options.out / "checkpoint.pt").exists():
            shutil.copyfile(options.config, options.out / "config.toml")
        run(config, options.out, resume=options.resume, stop_after=options.stop_after)
    except (TrainingError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
