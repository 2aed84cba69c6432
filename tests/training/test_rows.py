"""Rows and masks: lists in, lists out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.training.rows import KINDS, buckets, make_batch, make_row


def test_loss_is_on_the_reply_and_the_end_only() -> None:
    row = make_row([1, 10, 11, 12, 2], [20, 21], [1, 3], 3)
    assert row.ids == (1, 10, 11, 12, 2, 20, 21, 3)
    assert row.ids[row.start] == 2
    assert row.targets == (20, 21, 3)
    assert row.kinds == (1, 3, KINDS.index("format"))


def test_an_empty_target_still_learns_to_stop() -> None:
    row = make_row([1, 10, 2], [], [], 3)
    assert row.targets == (3,)


def test_kinds_must_match_the_target() -> None:
    with pytest.raises(ValueError, match="2 target tokens and 1 kinds"):
        make_row([1, 10, 2], [20, 21], [1], 3)


def test_batches_are_rectangles_and_padding_carries_no_loss() -> None:
    long = make_row([1, 10, 11, 12, 2], [20, 21], [1, 3], 3)
    short = make_row([1, 10, 2], [20], [2], 3)
    batch = make_batch([long, short], pad=0)
    assert batch.ids == [[1, 10, 11, 12, 2, 20, 21, 3], [1, 10, 2, 20, 3, 0, 0, 0]]
    assert batch.at == [[4, 5, 6], [2, 3, 3]]
    assert batch.target == [[20, 21, 3], [20, 3, 0]]
    assert batch.kind == [[1, 3, 0], [2, 0, -1]]
    assert batch.tokens == 16
    for ids, at, target, kind in zip(batch.ids, batch.at, batch.target, batch.kind, strict=True):
        for place, token, what in zip(at, target, kind, strict=True):
            assert what < 0 or ids[place + 1] == token


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        make_batch([], pad=0)


@given(st.lists(st.integers(1, 200), max_size=60), st.integers(1, 400))
def test_buckets_hold_every_row_once_within_the_budget(lengths: list[int], budget: int) -> None:
    groups = buckets(lengths, budget)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[index] for index in group) <= budget


def test_rows_of_like_length_go_together() -> None:
    assert buckets([10, 99, 11, 100], 200) == [[3, 1], [2, 0]]
