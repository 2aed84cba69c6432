"""Numbers with their uncertainty: intervals, paired differences, lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Numbers: TypeAlias = NDArray[np.float64]

_Z95 = 1.959963984540054
# Fewer samples show nothing at 95 %: by chance alone, five differ in one direction in one case of sixteen.
_FEWEST = 6
_RESAMPLES = 10_000
_BLOCK = 4_000_000  # numbers drawn at once in a bootstrap; limits its memory and does not change its result


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval."""

    low: float
    high: float


def wilson(total: float, n: int) -> Interval:
    """The 95 % Wilson score interval of a mean of `n` values in [0, 1] that sum to `total`.

    The interval is designed for values of 0 or 1. Fractional values vary less than binary values of the same mean, so the
    interval is then conservative. Without values it is [0, 1].
    """
    if n == 0:
        return Interval(0.0, 1.0)
    share, z2 = total / n, _Z95 * _Z95
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 / (1 + z2 / n) * math.sqrt(max(0.0, share * (1 - share)) / n + z2 / (4 * n * n))
    # At 0 and 1 the bound equals the mean; rounding must not move it further.
    return Interval(0.0 if share <= 0 else max(0.0, middle - half), 1.0 if share >= 1 else min(1.0, middle + half))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Mean of b − a over `n` samples that both have, with a 95 % bootstrap interval."""

    n: int
    mean: float
    interval: Interval

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero, and there are samples enough for that to say something."""
        return self.n >= _FEWEST and (self.interval.low > 0 or self.interval.high < 0)


def paired_difference(
    a: Mapping[str, Sequence[float]], b: Mapping[str, Sequence[float]], *, seed: int = 0, resamples: int = _RESAMPLES
) -> Difference | None:
    """The difference b − a over the samples (keys) that both have; None without common samples.

    Several attempts at a sample are averaged first, and samples are resampled with replacement, because samples are
    independent of each other. The interval contains the middle 95 % of the resampled means. With one sample, or equal
    differences, it is a point.
    """
    common = sorted(key for key in a.keys() & b.keys() if a[key] and b[key])
    if not common:
        return None
    differences = np.array([_mean(b[key]) - _mean(a[key]) for key in common])
    means = _resampled_means(differences, resamples, np.random.default_rng(seed))
    low, high = np.percentile(means, [2.5, 97.5])
    return Difference(n=len(common), mean=float(differences.mean()), interval=Interval(float(low), float(high)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """y = intercept + slope · x, fitted by least squares to `n` points; `r2` is the share of the variance it explains.

    `r2` is None if y is constant.
    """

    slope: float
    intercept: float
    r2: float | None
    n: int


def fit_line(points: Sequence[tuple[float, float]]) -> Line | None:
    """The least-squares line; None with fewer than two different x."""
    if len({x for x, _ in points}) < 2:
        return None
    x, y = np.array(points, dtype=float).T
    dx, dy = x - x.mean(), y - y.mean()
    slope = float(dx @ dy / (dx @ dx))
    if len({y for _, y in points}) < 2:
        return Line(slope=0.0, intercept=float(points[0][1]), r2=None, n=len(points))
    r2 = max(0.0, 1 - float(((dy - slope * dx) ** 2).sum()) / float(dy @ dy))
    return Line(slope=slope, intercept=float(y.mean() - slope * x.mean()), r2=r2, n=len(points))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _resampled_means(values: _Numbers, resamples: int, rng: np.random.Generator) -> _Numbers:
    """Means of `resamples` resamples with replacement.

    The counts of the distinct values are one multinomial draw. Differences of scores have few distinct values, so this is
    fast.
    """
    distinct, counts = np.unique(values, return_counts=True)
    rows = max(1, _BLOCK // len(distinct))
    blocks = [
        rng.multinomial(len(values), counts / len(values), size=min(rows, resamples - start)) @ distinct / len(values)
        for start in range(0, resamples, rows)
    ]
    return np.concatenate(blocks)
