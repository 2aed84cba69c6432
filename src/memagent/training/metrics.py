"""Counts of a training or validation step: loss and token accuracy per kind, whole rows right."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from memagent.training.rows import KINDS


@dataclass(slots=True)
class Tally:
    """Sums over tokens and rows; add them up with +=."""

    loss: float = 0.0
    right: list[int] = field(default_factory=lambda: [0] * len(KINDS))
    total: list[int] = field(default_factory=lambda: [0] * len(KINDS))
    rows: int = 0
    rows_right: int = 0

    @classmethod
    def count(cls, loss_K: Tensor, right_NR: Tensor, kind_NR: Tensor) -> Tally:
        """loss_K of the tokens that carry loss; right_NR is True where there is none; kind_NR is -1 there."""
        masks = [kind_NR == kind for kind in range(len(KINDS))]
        return cls(
            loss=float(loss_K.double().sum()),
            right=[int(right_NR[mask].sum()) for mask in masks],
            total=[int(mask.sum()) for mask in masks],
            rows=len(kind_NR),
            rows_right=int(right_NR.all(1).sum()),
        )

    def __iadd__(self, other: Tally) -> Tally:
        self.loss += other.loss
        self.right = [a + b for a, b in zip(self.right, other.right, strict=True)]
        self.total = [a + b for a, b in zip(self.total, other.total, strict=True)]
        self.rows += other.rows
        self.rows_right += other.rows_right
        return self

    def summary(self) -> dict[str, float]:
        """Mean loss, accuracy per kind that occurred, and `row`: the share of rows right in every token."""
        result = {"loss": self.loss / max(1, sum(self.total))}
        for name, right, total in zip(KINDS, self.right, self.total, strict=True):
            if total:
                result[name] = right / total
        result["row"] = self.rows_right / max(1, self.rows)
        return result
