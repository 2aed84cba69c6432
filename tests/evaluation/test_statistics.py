from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.evaluation.statistics import Interval, fit_line, paired_difference, wilson


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [(0, 10, 0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1), (81, 263, 0.2553, 0.3662), (1, 1, 0.2065, 1)],
)
def test_wilson_against_published_values(right, n, low, high):
    interval = wilson(right, n)
    assert (interval.low, interval.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_wilson_of_nothing_is_everything():
    assert wilson(0, 0) == Interval(0, 1)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.floats(0, n), st.just(n))))
def test_wilson_holds_the_mean_and_stays_between_zero_and_one(case):
    total, n = case
    interval = wilson(total, n)
    assert 0 <= interval.low <= total / n + 1e-12
    assert total / n - 1e-12 <= interval.high <= 1


def test_wilson_covers_the_truth_of_fractional_scores_at_least_as_often_as_promised():
    rng = np.random.default_rng(5)
    scores = rng.choice([0, 1 / 3, 2 / 3, 1], p=[0.1, 0.2, 0.3, 0.4], size=(2000, 60))
    truth = 0.2 / 3 + 0.3 * 2 / 3 + 0.4
    intervals = [wilson(float(row.sum()), 60) for row in scores]
    assert np.mean([one.low <= truth <= one.high for one in intervals]) > 0.98


def samples(values):
    return {f"s{index}": [float(value)] for index, value in enumerate(values)}


def test_a_paired_difference_agrees_with_drawing_samples_again_one_by_one():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 2, 80), rng.integers(0, 3, 80) / 2
    found = paired_difference(samples(a), samples(b))
    drawn = rng.integers(0, 80, size=(20_000, 80))
    low, high = np.percentile((b - a)[drawn].mean(axis=1), [2.5, 97.5])
    assert found.n == 80
    assert found.mean == pytest.approx((b - a).mean())
    assert found.interval.low == pytest.approx(low, abs=0.015)
    assert found.interval.high == pytest.approx(high, abs=0.015)


def test_the_bootstrap_repeats_exactly_and_its_seed_matters():
    a, b = samples(np.zeros(30)), samples(np.random.default_rng(0).random(30))
    assert paired_difference(a, b, seed=3) == paired_difference(a, b, seed=3)
    assert paired_difference(a, b, seed=3) != paired_difference(a, b, seed=4)


def test_only_common_samples_count_and_attempts_are_averaged_first():
    a = {"x": [0, 1], "y": [1], "only a": [0]}
    b = {"x": [1, 1, 1, 0], "y": [1], "only b": [1]}
    found = paired_difference(a, b)
    assert (found.n, found.mean) == (2, pytest.approx(0.125))
    assert not found.clear
    assert paired_difference(a, {"z": [1]}) is None


def test_a_difference_that_never_varies_is_a_point():
    found = paired_difference(samples([0] * 9), samples([1] * 9))
    assert found.interval == Interval(1, 1)
    assert found.clear


def test_swapping_readers_turns_the_sign():
    a, b = samples(np.arange(50) % 2), samples(np.arange(50) % 5 / 4)
    there, back = paired_difference(a, b), paired_difference(b, a)
    assert there.mean == pytest.approx(-back.mean)
    assert there.interval.low == pytest.approx(-back.interval.high, abs=0.02)


def test_ten_thousand_resamples_take_little_memory_whatever_the_values():
    a, b = samples(np.zeros(2000)), samples(np.random.default_rng(0).random(2000))
    tracemalloc.start()
    try:
        paired_difference(a, b)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 120e6, "the 20 million numbers of all resamples at once are 160 MB, and as much again as fractions"


def test_a_line_is_found():
    line = fit_line([(x, 3 + 2 * x) for x in range(10)])
    assert (line.slope, line.intercept, line.r2, line.n) == (pytest.approx(2), pytest.approx(3), pytest.approx(1), 10)


def test_a_line_through_noise_agrees_with_numpy():
    rng = np.random.default_rng(2)
    x = rng.random(40) * 1e6
    y = 5 + 1e-4 * x + rng.normal(size=40) * 10
    line = fit_line(list(zip(x, y, strict=True)))
    slope, intercept = np.polyfit(x, y, 1)
    assert (line.slope, line.intercept) == (pytest.approx(slope), pytest.approx(intercept))
    assert line.r2 == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)


def test_a_line_needs_two_different_lengths():
    assert fit_line([]) is None
    assert fit_line([(5, 1), (5, 2)]) is None


def test_a_line_through_what_never_varies_explains_nothing():
    line = fit_line([(x, 0.1) for x in range(7)])
    assert (line.slope, line.intercept, line.r2, line.n) == (0, 0.1, None, 7)


def test_a_difference_over_few_samples_is_never_clear():
    def found(n):
        return paired_difference(samples([0] * n), samples([1] * n))

    assert [found(n).clear for n in (1, 5, 6, 20)] == [False, False, True, True]
