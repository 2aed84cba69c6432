"""Rows with equal prompts share one prefill, and each is what it is alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import transformers

from memagent.core import Sampling
from memagent.models.kinds import takes_gaps
from memagent.models.sampler import Row, sample
from tests.models.tiny import SHAPE, Counted, open_tiny_model

CONFIGS: dict[str, Any] = {
    "llama": transformers.LlamaConfig(**SHAPE),
    "sliding": transformers.MistralConfig(**SHAPE, sliding_window=16),
}


@pytest.fixture(scope="module", params=["lfm2", *CONFIGS])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.set_num_threads(1)
    return open_tiny_model(tmp_path_factory.mktemp("model"), CONFIGS.get(request.param))


def prompts(*lengths: int) -> list[list[int]]:
    draw = random.Random(0)
    return [[draw.randrange(4, 300) for _ in range(length)] for length in lengths]


def rows(given: Sequence[Sequence[int]], *, temperature: float = 1.0, tokens: Sequence[int] = (8,)) -> list[Row]:
    return [
        Row(
            prompt=prompt,
            max_tokens=tokens[number % len(tokens)],
            sampling=Sampling(temperature=temperature, top_p=0.9 if number % 2 else 1.0, seed=number),
        )
        for number, prompt in enumerate(given)
    ]


def generate(model: Any, batch: list[Row], stop_ids: frozenset[int] = frozenset()) -> list[Row]:
    sample(model, batch, stop_ids=stop_ids, pad_id=0)
    return batch


def assert_as_alone(model: Any, given: Sequence[Sequence[int]], **options: Any) -> None:
    together = generate(model, rows(given, **options))
    for number, row in enumerate(together):
        [alone] = generate(model, [rows(given, **options)[number]])
        assert row.ids == alone.ids
        assert row.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
        assert row.finish == alone.finish


def test_equal_prompts_are_prefilled_once(model: Any) -> None:
    one, other = prompts(40, 25)
    counted = Counted(model)
    generate(counted, rows([one, other, one, one, other]))
    assert counted.calls == [(2, 40)] + [(5, 1)] * 7


def test_prompts_that_differ_in_a_token_share_all_before_it_where_the_model_takes_gaps(model: Any) -> None:
    [one] = prompts(40)
    counted = Counted(model)
    generate(counted, rows([one, [*one[:-1], one[-1] ^ 1], one]))
    assert counted.calls[:2] == ([(1, 39), (2, 1)] if takes_gaps(model.config) else [(2, 40), (3, 1)])


def about(chunks: Sequence[Sequence[int]], tails: Sequence[int]) -> list[list[int]]:
    """Prompts that show a chunk and go on with something of their own, so many tokens of it."""
    draw = random.Random(1)
    return [[*chunk, *(draw.randrange(4, 300) for _ in range(tail))] for chunk in chunks for tail in tails]


def test_a_chunk_that_several_prompts_begin_with_is_prefilled_once(model: Any) -> None:
    counted = Counted(model)
    generate(counted, rows(about(prompts(60, 50), (9, 5, 7))))
    assert counted.calls[:2] == ([(2, 60), (6, 9)] if takes_gaps(model.config) else [(6, 69), (6, 1)])


def test_prompts_with_little_in_common_are_prefilled_as_they_are(model: Any) -> None:
    counted = Counted(model)
    generate(counted, rows(about(prompts(20), (40, 41, 42))))
    assert counted.calls[0] == (3, 62)


@pytest.mark.parametrize(
    ("chunks", "tails"),
    [((60,), (5, 5, 9)), ((60, 31), (1, 17)), ((40, 40, 3), (2, 6, 1)), ((50,), (1, 40))],
    ids=["one chunk", "two chunks", "a short one", "tails of unlike length"],
)
def test_rows_that_share_a_chunk_are_what_each_is_alone(model: Any, chunks: Sequence[int], tails: Sequence[int]) -> None:
    given = about(prompts(*chunks), tails)
    assert_as_alone(model, given, tokens=(8, 3, 12))
    assert_as_alone(model, [*given, given[0], prompts(25)[0]], temperature=0.0)


@pytest.mark.parametrize("order", ["aaaa", "abab", "abba", "bbaab", "abcacb", "ab", "a"])
def test_sampled_rows_are_what_each_is_alone_in_whatever_order_their_prompts_come(model: Any, order: str) -> None:
    known = dict(zip("abc", prompts(40, 25, 3), strict=True))
    assert_as_alone(model, [known[name] for name in order])


def test_rows_of_one_prompt_draw_from_streams_of_their_own(model: Any) -> None:
    [one] = prompts(40)
    found = generate(model, rows([one] * 6))
    assert len({tuple(row.ids) for row in found}) > 1


def test_greedy_rows_of_one_prompt_are_equal(model: Any) -> None:
    [one] = prompts(40)
    found = generate(model, rows([one] * 3, temperature=0.0))
    assert found[0].ids == found[1].ids == found[2].ids


def test_rows_that_share_a_prefill_may_end_at_different_times(model: Any) -> None:
    one, other = prompts(40, 25)
    assert_as_alone(model, [one, other, one, other, one, one], tokens=(1, 8, 3, 2, 12))


def test_log_probabilities_are_those_of_a_plain_forward_pass(model: Any) -> None:
    one, other = prompts(40, 25)
    for row in generate(model, rows([other, one, other])):
        with torch.no_grad():
            logits = model(torch.tensor([[*row.prompt, *row.ids]])).logits[0, len(row.prompt) - 1 : -1]
        expected = logits.log_softmax(-1)[range(len(row.ids)), row.ids].tolist()
        assert row.logprobs == pytest.approx(expected, abs=1e-4)
