"""One optimizer step of Multi-Conv DAPO: credited rows → micro-batches under a token budget → a gradient → AdamW."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from memagent.errors import TrainingError
from memagent.training.credit import CreditedRow
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


class Updater:
    """The optimizer of a policy."""

    def __init__(self, policy: Policy, config: UpdateConfig, objective: Objective, failures: Path) -> None:
        self._policy, self._config, self._objective = policy, config, objective
        self._failures = failures
        self._pad = policy.tokenizer.pad_token_id or 0
        self.optimizer = torch.optim.AdamW(
            policy.parameters(), lr=config.rate, betas=config.betas, weight_decay=config.weight_decay, fused=True
        )

    @torch.no_grad()
    def recompute(self, rows: Sequence[CreditedRow]) -> list[Tensor]:
        """The log-probabilities of each row's reply under the policy as it is now, by the forward pass of training."""
        found: dict[int, Tensor] = {}
        for members, batch in micro_batches(rows, self._config.batch_tokens, self._pad):
            logprob_NR, _ = self._policy.score(batch)
            for member, value_R in zip(members, logprob_NR, strict=True):
                found[id(member)] = value_R[: len(member.conversation.reply)]
        return [found[id(row)] for row in rows]

    def step(self, rows: Sequence[CreditedRow], rate: float, old: Sequence[Tensor] | None = None) -> Step:
        """One optimizer step. `old` are the log-probabilities that ratios refer to (None: those recorded in sampling).

        Raises TrainingError, the rows being saved, when the loss or its gradient is not a number or has exploded.
        """
        known = {id(row): value for row, value in zip(rows, old, strict=True)} if old is not None else None
        statistics, total, tokens = Statistics(), 0.0, 0
        with self._policy.training():
            for members, batch in micro_batches(rows, self._config.batch_tokens, self._pad):
                loss = self._loss(members, batch, known, statistics)
                total += loss.item()
                tokens += batch.tokens
                if not math.isfinite(total):
                    self._fail(rows, f"the loss is {total}")
                loss.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(self._policy.parameters(), self._config.clip))
        if not math.isfinite(norm) or norm > self._config.explode:
            self._fail(rows, f"the gradient's norm is {norm:.4g}, the limit (update.explode) is {self._config.explode:.4g}")
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return Step(loss=total, grad_norm=norm, statistics=statistics, tokens=tokens)

    def _loss(
        self, members: Sequence[CreditedRow], batch: Batch, known: dict[int, Tensor] | None, statistics: Statistics
    ) -> Tensor:
        device = self._policy.device
        mask_NR = torch.tensor(batch.kind, device=device) >= 0
        old_NR = torch.zeros(mask_NR.shape, device=device)
        for place, member in enumerate(members):
            recorded = torch.tensor(member.conversation.logprobs) if known is None else known[id(member)]
            old_NR[place, : len(member.conversation.reply)] = recorded.to(device)
        reference_NR = self._policy.score_reference(batch) if self._objective.kl else None
        logprob_NR, entropy_NR = self._policy.score(batch, entropy=self._objective.entropy > 0)

        def column(values: list[float]) -> Tensor:
            return torch.tensor(values, device=device)[:, None]

        weights = Weights(
            mask_NR=mask_NR,
            up_N1=column([row.up for row in members]),
            down_N1=column([row.down for row in members]),
            count_N1=column([float(row.count) for row in members]),
            share_N1=column([row.share for row in members]),
        )
        return policy_loss(self._objective, weights, logprob_NR, old_NR, entropy_NR, reference_NR, statistics)

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
