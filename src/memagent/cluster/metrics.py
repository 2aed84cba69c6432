"""What verl says of a batch and of a validation, as the metrics of a run of the small trainer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from memagent.training.config import MEAN
from memagent.training.validation import mean_over_parts


def summary(readings: Sequence[dict[str, Any]], metrics: dict[str, Any], rate: float) -> dict[str, float]:
    """The metrics of a batch under the names of the small trainer. Rewards are over everything sampled."""
    by_name: defaultdict[str, list[float]] = defaultdict(list)
    for reading in readings:
        by_name[reading["name"]].append(reading["reward"])
    total = sum(reading["total"] for reading in readings)
    named = {
        "loss": "actor/loss",
        "grad_norm": "actor/grad_norm",
        "updates": "memagent/updates",
        "clip_high": "actor/actor/pg_clipfrac",
        "clip_low": "actor/actor/pg_clipfrac_lower",
        "kl": "actor/kl_loss",
        "entropy": "actor/actor/entropy_loss",
        **{name: f"memagent/{name}" for name in ("groups", "kept", "no_signal", "failed", "resampled")},
    }
    memories = [reading["memory_tokens"] for reading in readings if reading["memory_tokens"] is not None]
    return {
        "reward": _mean([reading["reward"] for reading in readings]),
        **{name: float(metrics[key]) for name, key in named.items() if key in metrics},
        "lr": rate,
        "memory_tokens": _mean(memories),
        **({"retention": sum(reading["kept"] for reading in readings) / total} if total else {}),
        "truncated": _mean([float(reading["truncated"] > 0) for reading in readings]),
        "skipped": _mean([reading["skipped"] for reading in readings]),
        **{f"reward/{name}": _mean(values) for name, values in sorted(by_name.items())},
    }


def cells(found: dict[str, Any], rows: Any) -> dict[str, dict[str, float]]:
    """verl's validation metrics as the small trainer's: per cell its score, number of readings and how many failed."""
    count: defaultdict[str, int] = defaultdict(int)
    for index in range(len(rows)):
        count[rows[index]["data_source"]] += 1
    result = {
        cell: {
            "score": float(found[f"val-core/{cell}/reward/mean@1"]),
            "n": float(number),
            "failed": round(float(found[f"val-aux/{cell}/failed/mean@1"]) * number),
        }
        for cell, number in count.items()
    }
    scores = {cell: [values["score"]] * count[cell] for cell, values in result.items()}
    return {**result, MEAN: {"score": mean_over_parts(scores), "n": float(sum(count.values()))}}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
