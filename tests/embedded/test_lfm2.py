"""The forward pass for the ends of rows gives what the stock model gives there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import Lfm2Config, Lfm2ForCausalLM, LlamaConfig, LlamaForCausalLM

from memagent.core import Sampling
from memagent.embedded.lfm2 import prefill, reach, reply_hidden
from memagent.models import sampler, speculation
from memagent.models.sampler import Row, sample
from tests.models.tiny import SHAPE, Counted

LAYERS = [
    ["conv", "full_attention", "conv", "full_attention", "conv"],
    ["full_attention"],
    ["conv", "full_attention", "conv", "conv"],
]


def make_model(layers: list[str], dtype: torch.dtype = torch.float32, **options: Any) -> Lfm2ForCausalLM:
    config = Lfm2Config(**SHAPE | {"num_hidden_layers": len(layers)}, layer_types=layers, conv_L_cache=4, **options)
    torch.manual_seed(1)
    model = Lfm2ForCausalLM(config)
    torch.nn.init.normal_(model.model.embed_tokens.weight.data[0])  # what stands for padding is not nothing
    return model.to(dtype).eval()


def random_ids(rows: int, tokens: int) -> torch.Tensor:
    return torch.randint(4, 300, (rows, tokens), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("layers", LAYERS)
def test_the_reply_is_computed_as_the_stock_model_does(layers: list[str]) -> None:
    model, ids_NT = make_model(layers), random_ids(3, 40)
    at_NR = torch.tensor([[12, 13, 14], [20, 21, 22], [37, 38, 39]])
    stock = model.model(ids_NT).last_hidden_state.gather(1, at_NR[..., None].expand(-1, -1, 64))
    torch.testing.assert_close(reply_hidden(model, ids_NT, at_NR), stock, rtol=1e-4, atol=1e-4)


def test_in_bfloat16_it_is_as_near_to_float32_as_the_stock_model() -> None:
    exact, rounded, ids_NT = make_model(LAYERS[0]), make_model(LAYERS[0], torch.bfloat16), random_ids(3, 200)
    at_NR = torch.arange(150, 190)[None].expand(3, -1)
    with torch.inference_mode():
        truth = reply_hidden(exact, ids_NT, at_NR)
        stock = rounded.model(ids_NT).last_hidden_state[:, 150:190].float()
        mine = reply_hidden(rounded, ids_NT, at_NR)
    assert mine.dtype == torch.bfloat16
    assert (mine.float() - truth).abs().mean() < 1.3 * (stock - truth).abs().mean()


def test_padding_on_the_right_changes_nothing() -> None:
    model, ids_NT, at_NR = make_model(LAYERS[0]), random_ids(1, 20), torch.tensor([[15, 16, 17]])
    padded = torch.cat([ids_NT, torch.zeros(1, 9, dtype=torch.long)], dim=1)
    torch.testing.assert_close(reply_hidden(model, padded, at_NR), reply_hidden(model, ids_NT, at_NR))


def test_what_it_cannot_compute_it_says() -> None:
    assert reach(make_model(LAYERS[0])) == 3
    assert reach(make_model(LAYERS[2])) == 6
    assert reach(make_model(["conv", "conv"])) is None
    assert reach(make_model(LAYERS[0], conv_bias=True)) is None
    assert reach(LlamaForCausalLM(LlamaConfig(**SHAPE))) is None


@pytest.mark.parametrize("shortest", [4, 2])
def test_drafts_are_checked_with_it_as_with_the_stock_model(shortest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that is too short for it (2 tokens) goes the other way."""
    model, used = make_model(LAYERS[0]), []
    monkeypatch.setattr(speculation, "reply_hidden", lambda *given: used.append(1) or reply_hidden(*given))
    lengths = [(30, 5), (shortest, 9), (41, 0), (17, 12)]  # of prompts and drafts
    guesses = [(tuple(random_ids(1, sum(both))[0].tolist()), both[1]) for both in lengths]
    with torch.inference_mode():
        found = speculation._logits(model, guesses, 0)
        stock = speculation._logits(Counted(model), guesses, 0)
    assert bool(used) == (shortest == 4)
    assert [len(logits) for logits in found] == [1 + drafted for _, drafted in lengths]
    for mine, theirs in zip(found, stock, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("lengths", [(30, 30), (41, 12, 30, 12), (41, 3)], ids=["even", "padded", "too short"])
def test_replies_are_generated_with_it_as_with_the_stock_model(
    layers: list[str], lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, used = make_model(layers), []
    monkeypatch.setattr(sampler, "prefill", lambda *given: used.append(1) or prefill(*given))

    def generated(way: Any) -> list[Row]:
        prompts = [random_ids(1, length)[0].tolist() for length in lengths]
        rows = [
            Row(prompt=prompt, max_tokens=6, sampling=Sampling(temperature=1.0, seed=number))
            for number, prompt in enumerate(prompts)
        ]
        sample(way, rows, stop_ids=frozenset(), pad_id=0)
        return rows

    mine, stock = generated(model), generated(Counted(model))
    assert bool(used) == (min(lengths) > 1 + (reach(model) or 0))
    assert [row.ids for row in mine] == [row.ids for row in stock]
    for one, other in zip(mine, stock, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.parametrize(("dtype", "autocast"), [(torch.bfloat16, False), (torch.float32, True)])
def test_in_bfloat16_replies_begin_as_with_the_stock_model(dtype: torch.dtype, autocast: bool) -> None:
    """Weights in bfloat16 as an engine has them, and products in bfloat16 as a policy in training has them."""
    model = make_model(LAYERS[0], dtype)

    def first(way: Any) -> list[float]:
        rows = [Row(prompt=random_ids(1, size)[0].tolist(), max_tokens=3, sampling=Sampling()) for size in (41, 12, 90)]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            sample(way, rows, stop_ids=frozenset(), pad_id=0)
        return [row.logprobs[0] for row in rows]

    assert first(model) == pytest.approx(first(Counted(model)), abs=0.06)


def test_a_model_whose_positions_depend_on_the_length_is_generated_with_as_the_stock_model_is() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    model = make_model(LAYERS[0], rope_parameters=rope)
    rows = [Row(prompt=random_ids(1, 30)[0].tolist(), max_tokens=6, sampling=Sampling()) for _ in range(2)]
    sample(model, rows[:1], stop_ids=frozenset(), pad_id=0)
    sample(Counted(model), rows[1:], stop_ids=frozenset(), pad_id=0)
    assert rows[0].ids == rows[1].ids
    assert len(rows[0].ids) == 6
