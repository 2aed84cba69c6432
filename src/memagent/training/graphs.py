"""Gradients of batches by CUDA graphs, for small models: a GPU runs the kernels of their passes faster than it starts them.

A graph is a pass that was recorded once, forward and backward, and is played back by one call
(docs/decisions/0033-recorded-passes.md). It computes one shape, in fixed places of memory. So the rows of a step are put
into slabs of few shapes, padded to their widths, and each slab is a playback.

Shapes: N rows, T tokens, R reply tokens, K of all rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from memagent.errors import ConfigError
from memagent.models.ends import reply_hidden
from memagent.training.metrics import Tally
from memagent.training.policy import Policy
from memagent.training.rows import Batch

# Widths of slabs are multiples of the first, lengths of replies of the second.
_WIDTH, _REPLY = 128, 192
_WARM_UP = 2  # passes before one is recorded, as PyTorch's guide to CUDA graphs has them


@dataclass(frozen=True, slots=True)
class Slab:
    """Rows of one shape: ids_NT, start_N (of the token before each reply), and target_NR, kind_NR, share_NR: what is to be
    predicted, what for (-1: nothing), and its share of the loss. All but the first `rows` are padding."""

    rows: int
    ids: Any
    start: Any
    target: Any
    kind: Any
    share: Any


class _Row(NamedTuple):
    """A row of a batch: tokens up to the end of its reply, tokens of the reply, and its part of what the batch holds."""

    width: int
    reply: int
    ids: Sequence[int]
    start: int
    target: Sequence[int]
    kind: Sequence[int]
    share: float


@dataclass(slots=True)
class _Graph:
    """The fixed memory of a shape: what goes in, what comes out, and the recorded pass (None: it is computed anew)."""

    given: dict[str, Tensor]
    loss_NR: Tensor
    right_NR: Tensor
    recorded: Any = None


@dataclass(slots=True)
class Graphs:
    """Adds up gradients of a policy. `tokens` is the size of a slab. On a CPU the same is computed, and nothing recorded.

    Raises ConfigError for a model of which only the stock forward pass is known, for adapters and for checkpointing. As in
    `reply_hidden`, no reply begins before what the model reaches back to.
    """

    policy: Policy
    tokens: int
    _known: dict[tuple[int, ...], _Graph] = field(default_factory=dict)
    _pool: Any = None
    _beside: Any = None

    def __post_init__(self) -> None:
        if not self.policy.computes_ends:
            raise ConfigError(
                "`graphs` are for models of the kind lfm2 whose weights are all trained, without checkpointing: leave it"
                " out"
            )
        for value in self.policy.parameters():
            value.grad = torch.zeros_like(value)  # its place is part of what is recorded

    def backward(self, batches: Sequence[tuple[Batch, float]]) -> Tally:
        """Adds the gradient of the sum of batch losses, each a mean over reply tokens times a weight. Returns counts."""
        tally, device = Tally(), self.policy.device
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            for slab in slabs(batches, self.tokens):
                tally += self._one(slab)
        return tally

    def _one(self, slab: Slab) -> Tally:
        shape = (*slab.ids.shape, slab.kind.shape[1])
        if shape not in self._known:
            self._known[shape] = self._new(slab)
        graph = self._known[shape]
        for name, place in graph.given.items():
            place.copy_(torch.from_numpy(getattr(slab, name)))
        if graph.recorded is None:
            self._pass(graph)
        else:
            graph.recorded.replay()
        kind_NR = torch.from_numpy(slab.kind[: slab.rows])
        loss_NR, right_NR = graph.loss_NR.cpu()[: slab.rows], graph.right_NR.cpu()[: slab.rows]
        return Tally.count(loss_NR[kind_NR >= 0], right_NR | (kind_NR < 0), kind_NR)

    def _new(self, slab: Slab) -> _Graph:
        device, (rows, replies) = self.policy.device, slab.kind.shape
        given = {name: torch.from_numpy(getattr(slab, name)).to(device) for name in ("ids", "start", "target", "share")}
        graph = _Graph(
            given,
            torch.zeros(rows, replies, device=device),
            torch.zeros(rows, replies, dtype=torch.bool, device=device),
        )
        if device.type == "cuda":
            self._record(graph)
        return graph

    def _record(self, graph: _Graph) -> None:
        gradients = [value.grad.clone() for value in self.policy.parameters() if value.grad is not None]
        self._beside = beside = self._beside or torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(_WARM_UP):
                self._pass(graph)
        torch.cuda.current_stream().wait_stream(beside)
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded, pool=self._pool):
            self._pass(graph)
        self._pool, graph.recorded = self._pool or recorded.pool(), recorded
        with torch.no_grad():  # what the passes above have added
            for value, kept in zip(self.policy.parameters(), gradients, strict=True):
                assert value.grad is not None
                value.grad.copy_(kept)

    def _pass(self, graph: _Graph) -> None:
        given, replies = graph.given, graph.loss_NR.shape[1]
        at_NR = given["start"][:, None] + torch.arange(replies, device=self.policy.device)
        with self.policy.computing():
            hidden_NRD = reply_hidden(self.policy.causal, given["ids"], at_NR)
            logits_NRV = functional.linear(hidden_NRD, self.policy.causal.lm_head.weight).float()
        target_NR = given["target"]
        loss_NR = functional.cross_entropy(logits_NRV.flatten(0, 1), target_NR.flatten(), reduction="none").view_as(
            target_NR
        )
        (loss_NR * given["share"]).sum().backward()
        with torch.no_grad():
            graph.loss_NR.copy_(loss_NR)
            graph.right_NR.copy_(logits_NRV.argmax(-1) == target_NR)


def slabs(batches: Sequence[tuple[Batch, float]], tokens: int) -> Iterator[Slab]:
    """The rows of batches in slabs of about so many tokens, the widest first; only the last one is filled up with rows of
    padding, which weigh nothing."""
    rows: list[_Row] = []
    for batch, weight in batches:
        kind_NR = np.asarray(batch.kind)
        share = weight / max(1, int((kind_NR >= 0).sum()))
        for ids, at, target, kind, reply in zip(
            batch.ids, batch.at, batch.target, batch.kind, (kind_NR >= 0).sum(1), strict=True
        ):
            rows.append(_Row(at[0] + 1 + int(reply), int(reply), ids, at[0], target, kind, share))
    rows.sort(key=lambda row: -row.width)
    while rows:
        width = _up(rows[0].width, _WIDTH)
        count = max(1, tokens // width)
        yield _slab(rows[:count], count, width)
        del rows[:count]


def _slab(rows: Sequence[_Row], count: int, width: int) -> Slab:
    reply = _up(max(row.reply for row in rows), _REPLY)
    slab = Slab(
        rows=len(rows),
        ids=np.zeros((count, width), np.int64),
        start=np.full(count, max(0, width - reply - 1), np.int64),
        target=np.zeros((count, reply), np.int64),
        kind=np.full((count, reply), -1, np.int64),
        share=np.zeros((count, reply), np.float32),
    )
    for place, row in enumerate(rows):
        slab.ids[place, : min(width, len(row.ids))] = row.ids[:width]
        slab.start[place] = row.start
        known = min(reply, len(row.kind))
        slab.target[place, :known], slab.kind[place, :known] = row.target[:known], row.kind[:known]
        slab.share[place, :known] = np.where(slab.kind[place, :known] >= 0, row.share, 0.0)
    return slab


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
