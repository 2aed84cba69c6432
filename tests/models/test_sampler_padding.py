"""Prompts of unequal length in one batch: the result of each is what it is alone, under torch's own attention."""

from __future__ import annotations

import random

import pytest
import torch
import transformers

from memagent.core import Sampling
from memagent.embedded import attention
from memagent.embedded.attention import NAME, use_row_attention
from memagent.models.open import EMBEDDED
from memagent.models.sampler import Row, sample
from tests.models.tiny import SHAPE, open_tiny_model

CONFIGS = {
    "llama": transformers.LlamaConfig(**SHAPE),
    "qwen3": transformers.Qwen3Config(**SHAPE, head_dim=16),
    "a short sliding window": transformers.MistralConfig(**SHAPE, sliding_window=16),
    "a long sliding window": transformers.MistralConfig(**SHAPE, sliding_window=500),
    "sliding and full": transformers.Gemma3TextConfig(**SHAPE, head_dim=16, sliding_window=16, query_pre_attn_scalar=16),
}
LENGTHS = (300, 1, 40, 129, 128, 2, 40, 299, 7)  # around the blocks of 128


@pytest.fixture(scope="module", params=["lfm2", *CONFIGS])
def model(request, tmp_path_factory):
    made = open_tiny_model(tmp_path_factory.mktemp("model"), CONFIGS.get(request.param))
    assert made.config._attn_implementation == NAME
    return made


def rows(lengths=LENGTHS, *, vocabulary=300, tokens=6):
    draw = random.Random(0)
    greedy = Sampling(temperature=0.0)
    return [
        Row(prompt=[draw.randrange(4, vocabulary) for _ in range(length)], max_tokens=tokens, sampling=greedy)
        for length in lengths
    ]


def generate(model, batch):
    sample(model, batch, stop_ids=frozenset(), pad_id=0)
    return batch


def under_sdpa(model, function):
    model.set_attn_implementation("sdpa")
    try:
        return function()
    finally:
        model.set_attn_implementation(NAME)


def padded(lengths=LENGTHS, *, left=True):
    torch.manual_seed(1)
    width = max(lengths)
    places = torch.arange(width)
    mask = torch.stack([places >= width - n if left else places < n for n in lengths]).long()
    return {"input_ids": torch.randint(4, 300, mask.shape), "attention_mask": mask}


def test_a_row_of_a_ragged_batch_is_what_it_is_alone_under_sdpa(model):
    together = generate(model, rows())
    alone = under_sdpa(model, lambda: [generate(model, [row])[0] for row in rows()])
    assert [row.ids for row in together] == [row.ids for row in alone]
    for row, expected in zip(together, alone, strict=True):
        assert row.logprobs == pytest.approx(expected.logprobs, abs=1e-5)


def test_the_order_of_a_batch_does_not_matter(model):
    forward, backward = generate(model, rows()), generate(model, rows()[::-1])[::-1]
    assert [row.ids for row in forward] == [row.ids for row in backward]


@pytest.mark.parametrize("left", [True, False])
@torch.no_grad()
def test_every_position_is_causal_whichever_side_is_padded(model, left):
    if not left and model.config.model_type == "lfm2":
        pytest.skip("its convolution needs padding on the left")
    given = padded(left=left)
    logits = model(**given).logits
    expected = under_sdpa(model, lambda: model(**given).logits)
    real = given["attention_mask"].bool()
    assert torch.isfinite(logits).all()
    torch.testing.assert_close(logits[real], expected[real], atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_sdpa(model):
    def gradient():
        model.zero_grad()
        model(**padded((60, 9)), labels=padded((60, 9))["input_ids"]).loss.backward()
        return model.get_input_embeddings().weight.grad.clone()

    torch.testing.assert_close(gradient(), under_sdpa(model, gradient))


def test_torchs_kernel_row_by_row_gives_the_same():
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, heads, 200, 16) for heads in (4, 2, 2))
    starts = [0, 150, 199]
    ours = attention._prefill(query, key, value, starts, 0.3)
    torch.testing.assert_close(attention._prefill_tiled(query, key, value, starts, 0.3), ours)
    assert not ours[1, :150].any()


def test_another_attention_that_was_chosen_stays():
    made = transformers.AutoModelForCausalLM.from_config(CONFIGS["llama"], attn_implementation="eager")
    use_row_attention(made)
    assert made.config._attn_implementation == "eager"


@pytest.mark.parametrize("tiles", [False, True])
def test_in_bfloat16_it_is_as_close_to_float32_as_sdpa_is(tiles, monkeypatch):
    monkeypatch.setattr(attention, "_TILES", tiles)  # as on a processor without them, or with
    made = transformers.AutoModelForCausalLM.from_pretrained(EMBEDDED, dtype=torch.float32).eval()
    vocabulary = made.config.vocab_size
    lengths = (610, 560, 400, 250, 90)

    def first():
        return torch.tensor([row.logprobs[0] for row in generate(made, rows(lengths, vocabulary=vocabulary, tokens=1))])

    exact = first()
    made.to(torch.bfloat16)
    sdpa = (first() - exact).abs().mean()
    use_row_attention(made)
    assert (first() - exact).abs().mean() < 2 * sdpa + 0.01
