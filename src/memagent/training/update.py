"""One optimizer step of Multi-Conv DAPO: credited rows → micro-batches under a token budget → a gradient → AdamW."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from memagent.errors import TrainingError
from memagent.training.credit import CreditedRow
from memagent.training.helpers import Helpers, dealt
from memagent.training.loss import Objective, Statistics, Weights, policy_loss
from memagent.training.policy import Policy
from memagent.training.rl_config import UpdateConfig
from memagent.training.rows import Batch, Row, buckets, make_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of an optimizer step. `tokens` is what was computed, prompts and padding included."""

    loss: float
    grad_norm: float
    statistics: Statistics
    tokens: int


def micro_batches(rows: Sequence[CreditedRow], batch_tokens: int, pad: int) -> list[tuple[list[CreditedRow], Batch]]:
    """The rows in rectangles of at most `batch_tokens` tokens, those of like length together."""
    lengths = [len(row.conversation.prompt) + len(row.conversation.reply) for row in rows]
    made = []
    for group in buckets(lengths, batch_tokens):
        members = [rows[index] for index in group]
        made.append((members, make_batch([_row(member) for member in members], pad)))
    return made


@dataclass(frozen=True, slots=True)
class Micro:
    """A micro-batch, and for each of its rows the log-probabilities that ratios refer to."""

    rows: Sequence[CreditedRow]
    batch: Batch
    old: Sequence[Sequence[float]]


@dataclass(slots=True)
class Part:
    """What some micro-batches add to a step."""

    loss: float = 0.0
    tokens: int = 0
    statistics: Statistics = field(default_factory=Statistics)


class Learner:
    """The policy as it learns: the loss of micro-batches, and its gradient."""

    def __init__(self, policy: Policy, objective: Objective) -> None:
        self.policy, self.objective = policy, objective

    @property
    def parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        return self.policy.named_parameters()

    def backward(self, share: Sequence[Micro]) -> Part:
        """Adds the gradient of these micro-batches to that of the parameters. It ends at a loss that is not a number."""
        part = Part()
        with self.policy.training():
            for micro in share:
                loss = self._loss(micro, part.statistics)
                part.loss += loss.item()
                part.tokens += micro.batch.tokens
                if not math.isfinite(part.loss):
                    break
                loss.backward()
        return part

    @torch.no_grad()
    def score(self, share: Sequence[Micro]) -> list[list[list[float]]]:
        """The log-probabilities of the replies of each micro-batch, row by row."""
        return [
            [
                value_R[: len(row.conversation.reply)].tolist()
                for row, value_R in zip(micro.rows, self.policy.score(micro.batch)[0], strict=True)
            ]
            for micro in share
        ]

    def _loss(self, micro: Micro, statistics: Statistics) -> Tensor:
        device, batch = self.policy.device, micro.batch
        mask_NR = torch.tensor(batch.kind, device=device) >= 0
        old_NR = torch.zeros(mask_NR.shape, device=device)
        for place, recorded in enumerate(micro.old):
            old_NR[place, : len(recorded)] = torch.tensor(recorded, device=device)
        reference_NR = self.policy.score_reference(batch) if self.objective.kl else None
        logprob_NR, entropy_NR = self.policy.score(batch, entropy=self.objective.entropy > 0)

        def column(values: list[float]) -> Tensor:
            return torch.tensor(values, device=device)[:, None]

        weights = Weights(
            mask_NR=mask_NR,
            up_N1=column([row.up for row in micro.rows]),
            down_N1=column([row.down for row in micro.rows]),
            count_N1=column([float(row.count) for row in micro.rows]),
            share_N1=column([row.share for row in micro.rows]),
        )
        return policy_loss(self.objective, weights, logprob_NR, old_NR, entropy_NR, reference_NR, statistics)


class Updater:
    """The optimizer of a policy that learns. `helpers` compute side by side with it; None: it computes alone."""

    def __init__(self, learner: Learner, config: UpdateConfig, failures: Path, helpers: Helpers[Any] | None = None) -> None:
        self._policy, self._config, self._failures = learner.policy, config, failures
        self._helpers: Helpers[Any] = helpers or Helpers(0, learner, Learner)
        self._pad = self._policy.tokenizer.pad_token_id or 0
        self.optimizer = torch.optim.AdamW(
            self._policy.parameters(), lr=config.rate, betas=config.betas, weight_decay=config.weight_decay, fused=True
        )

    def recompute(self, rows: Sequence[CreditedRow]) -> list[Tensor]:
        """The log-probabilities of each row's reply under the policy as it is now, by the forward pass of training."""
        found: dict[int, Tensor] = {}
        shares = self._shares(rows, [()] * len(rows))  # nothing to compare with yet
        for share, scored in zip(shares, self._helpers.each(Learner.score, shares), strict=True):
            for micro, values in zip(share, scored, strict=True):
                found |= {id(row): torch.tensor(value) for row, value in zip(micro.rows, values, strict=True)}
        return [found[id(row)] for row in rows]

    def step(self, rows: Sequence[CreditedRow], rate: float, old: Sequence[Tensor] | None = None) -> Step:
        """One optimizer step. `old` are the log-probabilities that ratios refer to (None: those recorded in sampling).

        Raises TrainingError, the rows being saved, when the loss or its gradient is not a number or has exploded.
        """
        known = [value.tolist() for value in old] if old is not None else [row.conversation.logprobs for row in rows]
        shares, whole = self._shares(rows, known), Part()
        for part in self._helpers.each(Learner.backward, shares):
            whole.loss += part.loss
            whole.tokens += part.tokens
            whole.statistics += part.statistics
        if not math.isfinite(whole.loss):
            self._fail(rows, f"the loss is {whole.loss}")
        self._helpers.gather(len(shares) - 1)
        norm = float(torch.nn.utils.clip_grad_norm_(self._policy.parameters(), self._config.clip))
        if not math.isfinite(norm) or norm > self._config.explode:
            self._fail(rows, f"the gradient's norm is {norm:.4g}, the limit (update.explode) is {self._config.explode:.4g}")
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return Step(loss=whole.loss, grad_norm=norm, statistics=whole.statistics, tokens=whole.tokens)

    def _shares(self, rows: Sequence[CreditedRow], old: Sequence[Sequence[float]]) -> list[list[Micro]]:
        """The rows in micro-batches, dealt out to the processes: smaller ones where there would be too few."""
        processes, budget = self._helpers.processes, self._config.batch_tokens
        total = sum(len(row.conversation.prompt) + len(row.conversation.reply) for row in rows)
        known = {id(row): value for row, value in zip(rows, old, strict=True)}
        made = micro_batches(rows, budget if processes == 1 else min(budget, math.ceil(total / processes)), self._pad)
        micros = [Micro(members, batch, [known[id(row)] for row in members]) for members, batch in made]
        hands = dealt([micro.batch.tokens for micro in micros], processes)
        return [[micros[place] for place in hand] for hand in hands]

    def _fail(self, rows: Sequence[CreditedRow], what: str) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        kept = [
            {"prompt": list(row.conversation.prompt), "reply": list(row.conversation.reply)}
            | {"logprobs": list(row.conversation.logprobs), "up": row.up, "down": row.down, "count": row.count}
            for row in rows
        ]
        try:
            self._failures.parent.mkdir(parents=True, exist_ok=True)
            torch.save({"rows": kept, "parameters": self._policy.state()}, self._failures)
            saved = f"the batch and the weights are in {self._failures}"
        except (OSError, RuntimeError) as error:
            saved = f"the batch could not be saved in {self._failures}: {error}"
        raise TrainingError(
            f"{what}: the run has stopped, {saved};"
            " resume with a lower update.rate (--set update.rate=…), or look at the batch"
        )


def _row(row: CreditedRow) -> Row:
    one = row.conversation
    return Row((*one.prompt, *one.reply), len(one.prompt) - 1, (0,) * len(one.reply))
