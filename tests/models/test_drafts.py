"""A draft never changes a reply: not its tokens, log-probabilities, end, nor what its random stream gives next."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent.core import Sampling, Turn
from memagent.models import drafts
from memagent.models.drafts import Drafting, check_drafts
from memagent.models.local import LocalEngine
from memagent.models.sampler import Row, sample
from tests.models.tiny import SHAPE, make_tiny_model, open_tiny_model

CONFIGS: dict[str, Any] = {
    "llama": transformers.LlamaConfig(**SHAPE),
    "sliding": transformers.MistralConfig(**SHAPE, sliding_window=16),
}
STOP = frozenset(range(4, 300, 12))  # some replies end, some run to their budget
LENGTHS = (40, 25, 3, 130, 40)


@pytest.fixture(scope="module", params=["lfm2", *CONFIGS])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.set_num_threads(1)
    return open_tiny_model(tmp_path_factory.mktemp("model"), CONFIGS.get(request.param))


class Counted:
    """A model that notes the size [rows, tokens] of every forward pass."""

    def __init__(self, model: Any) -> None:
        self.model, self.device, self.config = model, model.device, model.config
        self.calls: list[tuple[int, ...]] = []

    def __call__(self, **options: Any) -> Any:
        self.calls.append(tuple(options["input_ids"].shape))
        return self.model(**options)


def rows(guesses: Sequence[Sequence[int]] = ((),) * len(LENGTHS), *, temperature: float) -> list[Row]:
    draw = random.Random(0)
    prompts = [[draw.randrange(4, 300) for _ in range(length)] for length in LENGTHS]
    return [
        Row(
            prompt=prompt,
            max_tokens=(12, 7)[number % 2],
            sampling=Sampling(temperature=temperature, top_p=0.9 if number % 2 else 1.0, seed=number),
            draft=guess,
        )
        for number, (prompt, guess) in enumerate(zip(prompts, guesses, strict=True))
    ]


def generate(model: Any, batch: list[Row]) -> list[Row]:
    check_drafts(model, [row for row in batch if row.draft], stop_ids=STOP, pad_id=0)
    if going := [row for row in batch if not row.done]:
        sample(model, going, stop_ids=STOP, pad_id=0)
    return batch


def reply(row: Row) -> list[int]:
    """What a draft that is right says: the reply without the token that ended it."""
    return row.ids[:-1]


def assert_equal(drafted: Sequence[Row], plain: Sequence[Row]) -> None:
    for one, other in zip(drafted, plain, strict=True):
        assert one.ids == other.ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        assert one.finish == other.finish
        if other.random is not None:
            assert torch.equal(one.random.get_state(), other.random.get_state())


WAYS = {
    "right": lambda ids: ids,
    "cut short": lambda ids: ids[: len(ids) // 2],
    "too long": lambda ids: [*ids, 77, 78],
    "wrong at once": lambda ids: [ids[0] ^ 1, *ids[1:]] if ids else [50],
    "wrong at the end": lambda ids: [*ids[:-1], ids[-1] ^ 1] if ids else [50],
    "none": lambda ids: [],
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("way", WAYS)
def test_replies_are_those_without_a_draft(model: Any, temperature: float, way: str) -> None:
    plain = generate(model, rows(temperature=temperature))
    assert temperature == 0 or {row.finish for row in plain} == {"stop", "length"}
    guesses = [WAYS[way](reply(row))[: row.max_tokens - 1] for row in plain]
    assert_equal(generate(model, rows(guesses, temperature=temperature)), plain)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), temperature=st.sampled_from([0.0, 1.0]))
def test_whatever_the_drafts_are(model: Any, data: st.DataObject, temperature: float) -> None:
    plain = generate(model, rows(temperature=temperature))
    tail = st.lists(st.integers(0, 299), max_size=5)
    guesses = [[*row.ids[: data.draw(st.integers(0, 12))], *data.draw(tail)][:11] for row in plain]
    assert_equal(generate(model, rows(guesses, temperature=temperature)), plain)


def test_a_reply_that_is_its_draft_takes_one_pass(model: Any) -> None:
    plain = generate(model, rows(temperature=0.0))
    drafted = [row for row in rows([reply(row) for row in plain], temperature=0.0) if row.draft]
    assert len(drafted) > 2
    counted = Counted(model)
    generate(counted, drafted)
    assert counted.calls == [(len(drafted), max(len(row.prompt) + len(row.draft) for row in drafted))]


def test_a_draft_that_fails_late_leaves_little_to_generate(model: Any) -> None:
    plain = generate(model, rows(temperature=0.0))
    longest = max(plain, key=lambda row: len(row.ids))
    index = plain.index(longest)
    guesses: list[list[int]] = [[] for _ in plain]
    guesses[index] = [*longest.ids[:-2], longest.ids[-2] ^ 1]
    row = rows(guesses, temperature=0.0)[index]
    counted = Counted(model)
    generate(counted, [row])
    assert row.ids == longest.ids
    assert len(counted.calls) == 2  # the draft, and the one token that was left


def test_equal_prompts_with_equal_drafts_are_computed_once(model: Any) -> None:
    counted = Counted(model)
    same = [Row(prompt=[7] * 20, max_tokens=4, sampling=Sampling(), draft=[9, 8]) for _ in range(3)]
    other = Row(prompt=[7] * 20, max_tokens=4, sampling=Sampling(), draft=[9])
    boundary = Row(prompt=[7] * 20 + [9], max_tokens=4, sampling=Sampling(), draft=[8])  # the same ids, cut elsewhere
    check_drafts(counted, [*same, other, boundary], stop_ids=STOP, pad_id=0)
    assert counted.calls == [(3, 22)]
    assert same[0].ids == same[1].ids == same[2].ids


def test_the_logits_of_many_drafts_are_computed_in_parts(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = generate(model, rows(temperature=0.0))
    monkeypatch.setattr(drafts, "_LOGITS", 2 * 12 * model.config.vocab_size)
    counted = Counted(model)
    guesses = [(reply(row) + [5] * 11)[:11] for row in plain]
    drafted = rows(guesses, temperature=0.0)
    check_drafts(counted, drafted, stop_ids=STOP, pad_id=0)
    assert [size for size, _ in counted.calls] == [2, 2, 1]
    assert_equal(generate(model, rows(guesses, temperature=0.0)), plain)


def test_a_draft_whose_logits_never_fit_is_left_out(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = generate(model, rows(temperature=0.0))
    monkeypatch.setattr(drafts, "_LOGITS", model.config.vocab_size)
    assert_equal(generate(model, rows([reply(row) or [5] for row in plain], temperature=0.0)), plain)


def test_drafts_are_checked_while_half_of_them_hold() -> None:
    on = Drafting(True)
    on.saw([True, True, True, False] * 50)
    assert tried(on, 160) == 160
    on.saw([True, False, False, False] * 50)
    assert tried(on, 160) == 10
    on.saw([True, True, True, False] * 50)
    assert tried(on, 160) == 160
    assert tried(Drafting(False), 160) == 0


def tried(drafting: Drafting, turns: int) -> int:
    return sum(drafting.worthwhile() for _ in range(turns))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_tiny_model(tmp_path_factory.mktemp("engine"))


def turn(text: str, draft: str = "") -> Turn:
    return Turn(kind="update", number=0, user=text, max_tokens=12, draft=draft)


def test_an_engine_checks_the_draft_of_a_turn(folder: Any) -> None:
    engine = LocalEngine(folder, dtype="float32")
    [plain] = engine.generate([turn("a house")])
    engine.model = counted = Counted(engine.model)
    [drafted] = engine.generate([turn("a house", plain.text)])
    assert drafted.token_ids == plain.token_ids
    assert drafted.text == plain.text
    assert drafted.seconds > 0
    assert len(counted.calls) < len(plain.token_ids)


def test_a_policy_in_training_does_not(folder: Any) -> None:
    opened = LocalEngine(folder, dtype="float32")
    engine = LocalEngine.hosting(opened.model, opened._hf_tokenizer, name="policy", version="0")
    [plain] = engine.generate([turn("a house")])
    engine.model = counted = Counted(engine.model)
    engine.generate([turn("a house", plain.text)])
    assert len(counted.calls) == len(plain.token_ids)


def test_a_draft_that_looks_like_special_tokens_is_text(folder: Any) -> None:
    engine = LocalEngine(folder, dtype="float32")
    [plain] = engine.generate([turn("a house")])
    [drafted] = engine.generate([turn("a house", "<|end|><|reply|>" * 20)])
    assert drafted.token_ids == plain.token_ids
