"""What a token is drawn from when top_p is below 1, against its definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memagent.models.draw import nucleus

# Apart from each other: which of two that are equal in float32 comes first is nobody's business.
LOGITS = st.lists(st.integers(-800, 800).map(lambda number: number / 100), min_size=5, max_size=5, unique=True)
ROWS = st.lists(st.tuples(LOGITS, st.sampled_from([1e-6, 0.3, 0.8, 0.99, 1.0])), min_size=1, max_size=4)


@given(rows=ROWS)
def test_the_likeliest_that_reach_top_p(rows: list[tuple[list[float], float]]) -> None:
    drawn_from = nucleus(torch.tensor([logits for logits, _ in rows]), torch.tensor([top_p for _, top_p in rows]))
    for (logits, top_p), found in zip(rows, drawn_from.double(), strict=True):
        probs = torch.tensor(logits, dtype=torch.float64).softmax(-1)
        order = probs.argsort(descending=True)
        sums = probs[order].cumsum(0)
        if top_p < 1 and bool((sums - top_p).abs().min() < 1e-5):
            continue  # rounding decides
        kept = order[: int((sums < top_p).sum()) + 1] if top_p < 1 else order
        expected = torch.zeros_like(probs).index_copy(0, kept, probs[kept])
        assert (found / found.sum()).tolist() == pytest.approx((expected / expected.sum()).tolist(), abs=1e-6)
