"""(prompt ids, target ids) → rows → rectangular batches with a loss mask. Pure lists, no torch.

A row is one conversation: prompt, target, stop token. Only what the model must generate carries loss: the target and the
stop token. Rows of one batch have about the same length, so that little is padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# What a target token is for. A loss per kind shows what is not yet learned.
KINDS = ("format", "key", "decision", "value")


@dataclass(frozen=True, slots=True)
class Row:
    """`ids` is the whole conversation, with its stop token. `start` is the index of the prompt's last token: the first with
    a successor that carries loss. `kinds` holds one index into KINDS per token after `start`."""

    ids: tuple[int, ...]
    start: int
    kinds: tuple[int, ...]

    @property
    def targets(self) -> tuple[int, ...]:
        return self.ids[self.start + 1 :]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rectangles of ints, N rows: ids_NT (right-padded), and for the R steps of the longest reply at_NR (index of the
    token that predicts), target_NR (id to predict) and kind_NR (-1 where there is no loss)."""

    ids: list[list[int]]
    at: list[list[int]]
    target: list[list[int]]
    kind: list[list[int]]

    @property
    def tokens(self) -> int:
        """Size of the rectangle, padding included."""
        return len(self.ids) * len(self.ids[0])


def make_row(prompt: Sequence[int], target: Sequence[int], kinds: Sequence[int], stop: int) -> Row:
    """One conversation. `prompt` ends where the reply begins; `kinds` has one entry per token of `target`; the stop token
    counts as format."""
    if len(kinds) != len(target):
        raise ValueError(f"{len(target)} target tokens and {len(kinds)} kinds")
    return Row((*prompt, *target, stop), len(prompt) - 1, (*kinds, 0))


def make_batch(rows: Sequence[Row], pad: int) -> Batch:
    """Pads the rows to the longest one. Padded steps repeat the last token that predicts and carry kind -1."""
    if not rows:
        raise ValueError("a batch needs at least one row")
    width = max(len(row.ids) for row in rows)
    steps = max(len(row.kinds) for row in rows)
    batch = Batch([], [], [], [])
    for row in rows:
        missing = steps - len(row.kinds)
        batch.ids.append([*row.ids, *[pad] * (width - len(row.ids))])
        places = range(row.start, row.start + len(row.kinds))
        batch.at.append([*places, *[places[-1]] * missing])
        batch.target.append([*row.targets, *[pad] * missing])
        batch.kind.append([*row.kinds, *[-1] * missing])
    return batch


def buckets(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Indices of rows, grouped so that a padded group holds at most `batch_tokens` tokens (or one row that is longer).

    Rows of like length go together, long ones first; the order depends on the lengths alone.
    """
    groups: list[list[int]] = []
    width = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if not groups or (len(groups[-1]) + 1) * width > batch_tokens:
            groups.append([])
            width = lengths[index]
        groups[-1].append(index)
    return groups


def reply_tokens(batch: Batch) -> int:
    """The tokens of a batch that carry loss."""
    return sum(int(kind >= 0) for kinds in batch.kind for kind in kinds)
