"""What is looked up in the old memory changes no reply: not its tokens, their log-probabilities, nor its end."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memagent.core import Sampling, Turn
from memagent.models import kinds
from memagent.models import lookup as looking
from memagent.models.kinds import takes_gaps
from memagent.models.local import LocalEngine
from memagent.models.lookup import MOST, Lookup, guessed_at_once
from memagent.models.sampler import Row, sample
from tests.models.tiny import SHAPE, Counted, open_tiny_model, write_tokenizer

_GPT2 = {"vocab_size": 300, "n_positions": 512, "n_embd": 64, "n_layer": 2, "n_head": 4, "initializer_range": 0.15}
CONFIGS: dict[str, Any] = {
    "gpt2": transformers.GPT2Config(**_GPT2),
    "gpt_neox": transformers.GPTNeoXConfig(**SHAPE),
    "granite": transformers.GraniteConfig(**SHAPE),
    "llama": transformers.LlamaConfig(**SHAPE),
    "mistral": transformers.MistralConfig(**SHAPE, sliding_window=None),
    "mixtral": transformers.MixtralConfig(**SHAPE, sliding_window=None, num_local_experts=4),
    "olmo2": transformers.Olmo2Config(**SHAPE),
    "phi": transformers.PhiConfig(**SHAPE),
    "phi3": transformers.Phi3Config(**SHAPE, pad_token_id=0, sliding_window=None),
    "qwen2": transformers.Qwen2Config(**SHAPE),
    "qwen3": transformers.Qwen3Config(**SHAPE, head_dim=16),
    "stablelm": transformers.StableLmConfig(**SHAPE),
    "starcoder2": transformers.Starcoder2Config(**SHAPE, sliding_window=None),
}
LENGTHS = (40, 25, 3, 90, 40)
SAMPLINGS = (Sampling(), Sampling(temperature=1.3, seed=5), Sampling(temperature=0.9, top_p=0.6, seed=6))


@pytest.fixture(scope="module", params=CONFIGS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.set_num_threads(1)
    return open_tiny_model(tmp_path_factory.mktemp("model"), CONFIGS[request.param])


def rows(sampling: Sampling, texts: Any = None) -> list[Row]:
    draw = random.Random(0)
    made = []
    for number, length in enumerate(LENGTHS):
        prompt = [draw.randrange(4, 300) for _ in range(length)]
        lookup = Lookup(texts[number]) if texts is not None else None
        made.append(Row(prompt=prompt, max_tokens=(24, 15)[number % 2], sampling=sampling, lookup=lookup))
    return made


def run(model: Any, made: list[Row]) -> list[Row]:
    sample(model, made, stop_ids=frozenset({7}), pad_id=0)
    return made


@pytest.fixture(autouse=True)
def many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a device that checks many tokens at once."""
    monkeypatch.setattr(looking, "_STEP_CPU", 256)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_replies_are_the_same_with_any_text_to_look_up(model: Any, data: st.DataObject) -> None:
    sampling = data.draw(st.sampled_from(SAMPLINGS))
    plain = run(model, rows(sampling))
    texts = []
    for row in plain:
        kept = data.draw(st.lists(st.sampled_from(range(len(row.ids))), max_size=3).map(sorted))
        pieces = [row.ids[start:end] for start, end in zip([0, *kept], [*kept, len(row.ids)], strict=True)]
        other = data.draw(st.lists(st.integers(0, 299), max_size=6))
        texts.append([token for piece in pieces for token in (*piece, *other)])
    looked = run(model, rows(sampling, texts))
    for one, other in zip(plain, looked, strict=True):
        assert (one.ids, one.finish) == (other.ids, other.finish)
        assert other.logprobs == pytest.approx(one.logprobs, abs=1e-4)


def test_a_reply_that_stands_in_the_text_takes_few_passes(model: Any) -> None:
    plain = Counted(model)
    replies = [row.ids for row in run(plain, rows(Sampling()))]
    looked = Counted(model)
    run(looked, rows(Sampling(), replies))
    longest = max(map(len, replies))
    assert len(plain.calls) == longest
    twice = max(len(reply) - 1 - len(set(pairwise(reply))) for reply in replies)  # of which the wrong one may be taken
    assert len(looked.calls) <= 2 + -(-longest // (MOST + 1)) + twice


def test_guesses_go_on_where_the_text_was_left() -> None:
    lookup = Lookup([1, 2, 3, 4, 1, 2, 5, 6])
    assert lookup.guess([], 3) == (1, 2, 3)
    assert lookup.guess([1], 3) == (2, 3, 4)
    assert lookup.guess([9, 1, 2], 2) == (3, 4)
    assert lookup.guess([9, 1, 2, 3, 4], 9) == (1, 2, 5, 6)
    assert lookup.guess([3, 4, 1, 2], 9) == (5, 6), "the later place, since the earlier one was passed"
    assert lookup.guess([2, 3], 9) == (4, 1, 2, 5, 6), "what stands only before is found again"
    assert lookup.guess([8, 8], 9) == ()
    assert Lookup([]).guess([], 9) == ()
    assert Lookup([4, 6, 7]).guess([5], 9) == (), "a reply that begins otherwise"
    again = Lookup([1, 2, 3, 1, 2, 4, 5, 6, 7])
    assert again.guess([5, 6], 9) == (7,)
    assert again.guess([1, 2], 9) == (3, 1, 2, 4, 5, 6, 7), "the first place, if all were passed"


def test_fewer_tokens_are_guessed_the_more_rows_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert [guessed_at_once(rows, "cpu") for rows in (1, 2, 4, 8, 9, 1000)] == [8, 7, 3, 1, 0, 0]
    assert [guessed_at_once(rows, "cuda") for rows in (1, 32, 128, 1000)] == [8, 7, 1, 0]


def test_a_row_that_is_done_or_that_has_no_guess_stays_within_the_window() -> None:
    torch.manual_seed(0)
    small = transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**_GPT2, "n_positions": 64})).eval()
    draw = random.Random(1)
    prompts = [[draw.randrange(4, 300) for _ in range(length)] for length in (60, *[20] * 4)]

    def rows_of(texts: list[list[int] | None]) -> list[Row]:
        budgets = (4, *[24] * 4)
        return [
            Row(prompt=prompt, max_tokens=most, sampling=Sampling(), lookup=Lookup(text) if text else None)
            for prompt, most, text in zip(prompts, budgets, texts, strict=True)
        ]

    plain = rows_of([None] * 5)
    sample(small, plain, stop_ids=frozenset(), pad_id=0)
    looked = rows_of([[*plain[0].ids, *range(5, 14)], *[row.ids for row in plain[1:]]])
    sample(small, looked, stop_ids=frozenset(), pad_id=0)
    assert [row.ids for row in looked] == [row.ids for row in plain]


def test_a_batch_counts_with_the_places_that_guesses_may_take() -> None:
    row = Row(prompt=[1] * 10, max_tokens=5, sampling=Sampling())
    assert (row.places, replace(row, lookup=Lookup([1])).places) == (15, 20)


def test_wrong_guesses_take_at_most_twice_the_places_of_a_reply(model: Any) -> None:
    widths: list[int] = []

    class Watched(Counted):
        def __call__(self, **options: Any) -> Any:
            widths.append(options["input_ids"].shape[1])
            return super().__call__(**options)

    [plain] = run(model, rows(Sampling())[:1])
    wrong = [token for first, second in pairwise(plain.ids) for token in (first, second, *[3] * MOST)]
    [looked] = run(Watched(model), [replace(rows(Sampling())[0], lookup=Lookup(wrong))])
    assert looked.ids == plain.ids
    assert sum(widths[1:]) <= 2 * looked.max_tokens


def test_only_kinds_with_plain_attention_take_gaps() -> None:
    small = {**SHAPE, "max_position_embeddings": 64}
    assert {config.model_type for config in CONFIGS.values()} == kinds._TESTED
    assert all(takes_gaps(config) for config in CONFIGS.values())
    refused = [
        transformers.MistralConfig(**small, sliding_window=16),
        transformers.Gemma3TextConfig(**small, head_dim=16),
        transformers.Lfm2Config(**small, layer_types=["conv", "full_attention"]),
        transformers.MambaConfig(vocab_size=300, hidden_size=64, num_hidden_layers=2),
        transformers.JambaConfig(**{**small, "num_hidden_layers": 2}),
        transformers.LlamaConfig(**small, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
        transformers.MptConfig(vocab_size=300, d_model=64, n_heads=4, n_layers=2),
        transformers.GPTNeoConfig(vocab_size=300, hidden_size=64, num_layers=2, attention_types=[[["global", "local"], 1]]),
    ]
    assert [takes_gaps(config) for config in refused] == [False] * len(refused)


def test_a_folder_of_weights_looks_up_the_old_memory_by_itself(tmp_path: Any) -> None:
    size = write_tokenizer(tmp_path)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**{**SHAPE, "vocab_size": size})
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    engine = LocalEngine(tmp_path, dtype="float32")

    def passes(draft: str) -> tuple[int, str]:
        counted = engine.model = Counted(whole)
        turn = Turn(kind="update", id="chunk-1", user="The house is blue.", max_tokens=40, draft=draft)
        [completion] = engine.generate([turn])
        assert not isinstance(completion, Exception)
        return len(counted.calls), completion.text

    whole = engine.model
    alone, reply = passes("")
    looked, again = passes(reply)
    assert again == reply
    assert looked < alone, "fewer, although the text of a random reply is not cut into the tokens that it was made of"
