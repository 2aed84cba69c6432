"""Multi-Conv DAPO, the part without tensors: rewards → advantages → rows (arXiv 2507.02259, §3.2; arXiv 2503.14476).

    A_i        = R_i − mean(R_1 … R_G)             a reading's advantage within its group, before it is expanded
    A_{i,j,t}  = A_i                               the same for every token t of every conversation j of the reading

A reading is a trajectory of conversations: every memory update, and the answer last. R_i judges the answer alone. Where the
turns are judged as well, by r_{i,j}, a share w of the credit is theirs (GRU-Mem, arXiv 2602.10560; w is 0 otherwise):

    A_{i,j,t}  = (1 − w) A_i + w (r_{i,j} − mean(r_{1,j} … r_{G,j}))     over the readings of the group that have a turn j
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeAlias

Normalise: TypeAlias = Literal["none", "std"]
Credit: TypeAlias = Literal["all", "final"]
Aggregate: TypeAlias = Literal["token", "sequence"]

_TINY = 1e-6  # keeps the division by a standard deviation finite
_EQUAL = 1e-9  # rewards closer than that are the same


@dataclass(frozen=True, slots=True)
class Conversation:
    """One turn as it was sampled: token ids of prompt and reply (its stop token included, if it came), and the natural log
    of the probability of each token of the reply."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    logprobs: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.reply) != len(self.logprobs) or not self.reply:
            raise ValueError(
                f"{len(self.logprobs)} log-probabilities for {len(self.reply)} tokens, of which there must be one"
            )


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A whole reading: its conversations in order, the answer last, and the reward of that answer; `turns` are w r_j, the
    rewards of the conversations themselves with their weight, or () where they have none."""

    conversations: tuple[Conversation, ...]
    reward: float
    turns: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class CreditedRow:
    """A conversation and what is said of it: Σ of the positive advantages (`up`), Σ of the negative ones (`down`), and of
    how many equal conversations. `share` is the weight of each of its tokens in the mean over the update."""

    conversation: Conversation
    up: float
    down: float
    count: int = 1
    share: float = 0.0


def has_signal(rewards: Sequence[float]) -> bool:
    """Whether a group's rewards differ at all: otherwise all its advantages are 0 (dynamic sampling leaves it out)."""
    return max(rewards) - min(rewards) > _EQUAL


def turns_have_signal(group: Sequence[Trajectory]) -> bool:
    """Whether the rewards of any turn differ in a group."""
    return any(has_signal(column) for column in _by_turn(group))


def advantages(rewards: Sequence[float], normalise: Normalise = "none") -> list[float]:
    """A_i of the readings of one group. "std" also divides by the group's standard deviation (GRPO, arXiv 2402.03300)."""
    mean = math.fsum(rewards) / len(rewards)
    centred = [reward - mean for reward in rewards]
    if normalise == "none":
        return centred
    deviation = math.sqrt(math.fsum(value * value for value in centred) / len(rewards))
    return [value / (deviation + _TINY) for value in centred]


def credits(group: Sequence[Trajectory], normalise: Normalise = "none", turns: float = 0.0) -> list[list[float]]:
    """A_{i,j} of each conversation j of each reading i of a group. `turns` is w, the share of the turns' own rewards."""
    outcome = advantages([trajectory.reward for trajectory in group], normalise)
    means = [math.fsum(column) / len(column) for column in _by_turn(group)]
    found = []
    for trajectory, value in zip(group, outcome, strict=True):
        own = [reward - mean for reward, mean in zip(trajectory.turns, means, strict=False)]
        found.append([(1 - turns) * value + extra for extra in own or [0.0] * len(trajectory.conversations)])
    return found


def _by_turn(group: Sequence[Trajectory]) -> list[list[float]]:
    """The rewards of each turn, of the readings that have it."""
    longest = max(len(trajectory.turns) for trajectory in group)
    return [[one.turns[number] for one in group if number < len(one.turns)] for number in range(longest)]


def expand(
    trajectories: Sequence[Trajectory], advantage: Sequence[Sequence[float]], credit: Credit = "all"
) -> list[CreditedRow]:
    """One row for each conversation, with its advantage. "final": the answer alone is trained on."""
    rows = []
    for trajectory, values in zip(trajectories, advantage, strict=True):
        pairs = list(zip(trajectory.conversations, values, strict=True))
        for one, value in pairs if credit == "all" else pairs[-1:]:
            rows.append(CreditedRow(one, up=max(value, 0.0), down=min(value, 0.0)))
    return rows


def weigh(rows: Sequence[CreditedRow], aggregate: Aggregate = "token") -> list[CreditedRow]:
    """The rows with the share of their tokens: of all tokens of the update ("token", DAPO), or first within each row and
    then of all rows ("sequence", GRPO)."""
    tokens = sum(row.count * len(row.conversation.reply) for row in rows)
    count = sum(row.count for row in rows)
    if aggregate == "token":
        return [replace(row, share=1 / tokens) for row in rows]
    return [replace(row, share=1 / (count * len(row.conversation.reply))) for row in rows]


def merge(rows: Sequence[CreditedRow]) -> list[CreditedRow]:
    """Equal conversations (prompt and reply) as one row. The loss and its gradient stay what they were.

    The ratio of equal conversations is the same r, and the clipped objective is linear in the advantage on either side of
    0, so Σ_i C(r, A_i) needs only the two sums. What remains is rounding: the first of their recorded log-probabilities is
    taken for all. A policy that has learnt to copy writes most memories alike: this saves most of an update's work.
    """
    merged: dict[tuple[tuple[int, ...], tuple[int, ...]], CreditedRow] = {}
    for row in rows:
        key = (row.conversation.prompt, row.conversation.reply)
        known = merged.get(key)
        merged[key] = (
            row
            if known is None
            else replace(known, up=known.up + row.up, down=known.down + row.down, count=known.count + row.count)
        )
    return list(merged.values())


def parts(items: Sequence[object], number: int) -> list[tuple[int, int]]:
    """[start, end) of at most `number` runs of trajectories whose sizes differ by one at most: the optimizer's updates.

    They are counted in trajectories, so that their number does not depend on how many conversations a reading has.
    """
    number = min(number, len(items))
    bounds = [len(items) * place // number for place in range(number + 1)] if number else []
    return list(pairwise(bounds))
