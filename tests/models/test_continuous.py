"""Continuous batching: whenever a turn joins others, its reply is what it is alone; no turn waits for a longer one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memagent.core import Completion, Sampling, Turn
from memagent.driver import Transcript, TurnRecord, read, read_batch
from memagent.errors import ContextTooLongError, ModelError
from memagent.models import continuous
from memagent.models import lookup as looking
from memagent.models.cache import FullLayer
from memagent.models.continuous import ContinuousBatch
from memagent.models.kinds import _CONVOLVED, _TESTED, _WINDOWED, takes_gaps, takes_rows
from memagent.models.local import LocalEngine
from memagent.models.lookup import Lookup
from memagent.models.open import open_model
from memagent.models.sampler import Row, Running, sample
from memagent.settings import make_plan, make_settings
from tests.helpers import StringText
from tests.models.test_local import Cramped, turn
from tests.models.test_lookup import CONFIGS, SAMPLINGS
from tests.models.tiny import SHAPE, Counted, make_tiny_causal, make_tiny_model, open_tiny_model

STOP = frozenset({7})


WINDOWED: dict[str, Any] = {
    "cohere2": transformers.Cohere2Config(**SHAPE, sliding_window=16, layer_types=["sliding_attention", "full_attention"]),
    "gemma2": transformers.Gemma2Config(**SHAPE, head_dim=16, sliding_window=16, query_pre_attn_scalar=16),
    "gemma3": transformers.Gemma3TextConfig(
        **SHAPE,
        head_dim=16,
        sliding_window=16,
        query_pre_attn_scalar=16,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "gpt_oss": transformers.GptOssConfig(
        **SHAPE, head_dim=16, sliding_window=16, num_local_experts=4, num_experts_per_tok=2, pad_token_id=0
    ),
    "mistral, windowed": transformers.MistralConfig(**SHAPE, sliding_window=16),
    "olmo3": transformers.Olmo3Config(**SHAPE, sliding_window=16, layer_types=["sliding_attention", "full_attention"]),
    "qwen3, windowed": transformers.Qwen3Config(
        **SHAPE, head_dim=16, use_sliding_window=True, sliding_window=16, max_window_layers=1
    ),
}
for config in (
    transformers.Phi3Config(pad_token_id=0, **SHAPE),
    transformers.Starcoder2Config(**SHAPE),
    transformers.MixtralConfig(num_local_experts=4, **SHAPE),
):
    config.sliding_window = 16
    WINDOWED[f"{config.model_type}, windowed"] = config
WINDOWED["qwen2, windowed"] = transformers.Qwen2Config(
    **SHAPE, use_sliding_window=True, sliding_window=16, max_window_layers=1
)
CONVOLVED = {
    "lfm2": transformers.Lfm2Config(
        **{**SHAPE, "num_hidden_layers": 4},
        layer_types=["conv", "full_attention", "full_attention", "conv"],
        conv_L_cache=4,
    ),
    "lfm2, attention last": transformers.Lfm2Config(**SHAPE, layer_types=["conv", "full_attention"]),
}
ALL = {**CONFIGS, **WINDOWED, **CONVOLVED}


@pytest.fixture(scope="module", params=ALL)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.set_num_threads(1)
    return open_tiny_model(tmp_path_factory.mktemp("model"), ALL[request.param])


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    torch.set_num_threads(1)
    folder = make_tiny_causal(tmp_path_factory.mktemp("model"), transformers.LlamaConfig(**SHAPE))
    engine = LocalEngine(folder, dtype="float32")
    yield engine
    engine.close()


@pytest.fixture(autouse=True)
def many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses as on a device that checks many tokens at once."""
    monkeypatch.setattr(looking, "_STEP_CPU", 256)


@st.composite
def joining(draw: st.DrawFn) -> list[tuple[int, Row]]:
    """Rows, each with the step at which it joins. Some begin alike, some are equal."""
    prompts = random.Random(draw(st.integers(0, 99)))
    begun = [prompts.randrange(4, 300) for _ in range(40)]
    made = []
    for _ in range(draw(st.integers(1, 7))):
        own = [prompts.randrange(4, 300) for _ in range(draw(st.integers(1, 90)))]
        prompt = draw(st.sampled_from([own, [*begun, *own[:5]], begun]))
        row = Row(prompt=prompt, max_tokens=draw(st.integers(1, 24)), sampling=draw(st.sampled_from(SAMPLINGS)))
        made.append((draw(st.integers(0, 30)), row))
    return made


def assert_sound(running: Running) -> None:
    """Each row begins where it is said to, and sees as many columns as it has tokens, but the last, in the cache."""
    for row, start, seen in zip(running._places, running._starts, running._mask_BT, strict=True):
        if not row.done:
            assert (int(seen.argmax()), int(seen.sum())) == (start, len(row.begun) - 1)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=joining(), data=st.data())
def test_a_row_is_what_it_is_alone_whenever_it_joins(model: Any, rows: list[tuple[int, Row]], data: st.DataObject) -> None:
    alone = [replace(row, ids=[], logprobs=[]) for _, row in rows]
    for (_, row), expected in zip(rows, alone, strict=True):
        sample(model, [expected], stop_ids=STOP, pad_id=0)
        if takes_gaps(model.config) and data.draw(st.booleans()):  # most of what it looks up is right
            wrong = data.draw(st.sets(st.integers(0, 23), max_size=4))
            row.lookup = Lookup([5 if place in wrong else token for place, token in enumerate(expected.ids)])
    running = Running(model, stop_ids=STOP, pad_id=0)
    for step in range(31):
        if come := [row for when, row in rows if when == step]:
            running.join(come)
        elif running.rows:
            running.step()
        assert_sound(running)
    while running.rows:
        running.step()
    for (_, row), expected in zip(rows, alone, strict=True):
        assert (row.ids, row.finish) == (expected.ids, expected.finish)
        assert row.logprobs == pytest.approx(expected.logprobs, abs=1e-4)


def test_right_guesses_save_passes_for_rows_that_joined(engine: LocalEngine) -> None:
    rows = [Row(prompt=[5, 6, number], max_tokens=20, sampling=Sampling()) for number in (7, 8)]
    passes = []
    for _ in range(2):
        counted = Counted(engine.model)
        running = Running(counted, stop_ids=frozenset(), pad_id=0)
        for row in rows:
            running.join([row])
            running.step()
        while running.rows:
            running.step()
        passes.append(len(counted.calls))
        replies = [row.ids for row in rows]
        rows = [replace(row, ids=[], logprobs=[], lookup=Lookup(row.ids)) for row in rows]
    assert [row.ids for row in rows] != replies, "the second time they were generated anew"
    assert passes[1] < passes[0] / 2


def test_tokens_are_written_into_the_room_of_the_cache() -> None:
    layer: Any = FullLayer()  # type: ignore[no-untyped-call]
    parts = [torch.randn(2, 1, length, 4) for length in (64, 1)]
    for part in parts:
        layer.update(part, part)
    first = layer.keys.data_ptr()
    for _ in range(8):
        parts.append(torch.randn(2, 1, 1, 4))
        layer.update(parts[-1], parts[-1])
    assert layer.keys.data_ptr() == first, "nothing was copied"
    assert torch.equal(layer.keys, torch.cat(parts, dim=2))
    assert torch.equal(layer.values, layer.keys)


def test_a_batch_that_is_done_lets_go_of_its_cache(model: Any) -> None:
    running = Running(model, stop_ids=frozenset(), pad_id=0)
    running.join([Row(prompt=[5, 6, 7], max_tokens=3, sampling=Sampling())])
    assert running.shape == (1, 3)
    while running.rows:
        running.step()
    assert (running.shape, running._cache) == ((0, 0), None)


def test_the_cache_is_no_wider_than_the_rows_under_way(model: Any) -> None:
    draw = random.Random(0)
    running = Running(model, stop_ids=frozenset(), pad_id=0)
    for _ in range(40):  # one after the other, each for a few tokens, with always another under way
        prompt = [draw.randrange(4, 300) for _ in range(30)]
        running.join([Row(prompt=prompt, max_tokens=12, sampling=Sampling())])
        for _ in range(6):
            running.step()
    assert running._mask_BT.shape[1] <= (30 + 12) * 4 // 3 + 1
    assert len(running._places) <= 4


def test_only_kinds_that_were_tested_take_rows() -> None:
    assert {config.model_type for config in ALL.values()} == _TESTED | _WINDOWED | _CONVOLVED
    assert all(takes_rows(config) for config in ALL.values())
    assert not any(takes_gaps(config) for config in (*WINDOWED.values(), *CONVOLVED.values()))
    other = {**SHAPE, "max_position_embeddings": 64}
    refused = [
        transformers.Lfm2MoeConfig(**other, layer_types=["conv", "full_attention"]),
        transformers.LlamaConfig(**other, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
        transformers.MptConfig(vocab_size=300, d_model=64, n_heads=4, n_layers=2),
        transformers.JambaConfig(**{**other, "num_hidden_layers": 2}),
    ]
    assert [takes_rows(config) for config in refused] == [False] * len(refused)


def test_rows_join_no_others_where_a_model_would_see_what_is_masked(tmp_path: Any) -> None:
    config = transformers.MptConfig(vocab_size=300, d_model=64, n_heads=4, n_layers=2)
    running = Running(open_tiny_model(tmp_path, config), stop_ids=frozenset(), pad_id=0)
    rows = [Row(prompt=[5, 6, number], max_tokens=4, sampling=Sampling()) for number in (7, 8)]
    running.join(rows[:1])
    with pytest.raises(ValueError, match="'mpt' takes no rows on the way"):
        running.join(rows[1:])
    while running.rows:
        running.step()
    running.join(rows[1:])  # when the others are done


TURNS = {
    "long": turn("the house on the hill is blue. " * 5, max_tokens=60),
    "short": turn("a house", max_tokens=2),
    "drawn": turn("Москва 東京 1234567", temperature=1.2, seed=3, max_tokens=30),
    "shorter": turn("x", max_tokens=1),
}


def batch_of(engine: LocalEngine, turns: dict[str, Turn]) -> ContinuousBatch:
    batch = engine.batch()
    assert batch is not None
    for name, one in turns.items():
        batch.add(name, one)
    return batch


def ended(batch: ContinuousBatch) -> list[tuple[Any, Completion | Exception]]:
    found = []
    while step := batch.step():
        found += step
    return found


def test_turns_end_as_their_replies_do_and_say_what_they_say_alone(engine: LocalEngine) -> None:
    found = ended(batch_of(engine, TURNS))
    assert [name for name, _ in found] == ["shorter", "short", "drawn", "long"]
    for name, made in found:
        [alone] = engine.generate([TURNS[name]])
        assert isinstance(made, Completion)
        assert isinstance(alone, Completion)
        assert (made.token_ids, made.text, made.finish) == (alone.token_ids, alone.text, alone.finish)
        assert made.seconds > 0
    assert batch_of(engine, {}).step() == []


def test_a_turn_that_is_added_later_does_not_wait(engine: LocalEngine) -> None:
    batch = batch_of(engine, {"long": TURNS["long"], "short": TURNS["short"]})
    [(first, _)] = batch.step()
    names = [first]
    for number in range(5):
        batch.add(number, turn(f"house {number}", max_tokens=3))
        names += [name for name, _ in batch.step()]
    assert names == ["short", 0, 1, 2, 3, 4]
    assert [name for name, _ in ended(batch)] == ["long"]


def test_a_long_turn_goes_on_while_others_come_and_end_at_once(engine: LocalEngine) -> None:
    batch = batch_of(engine, {"long": turn("the house on the hill", max_tokens=20)})
    names: list[Any] = []
    for number in range(100):
        batch.add(number, turn(f"house {number}", max_tokens=1))
        names += [name for name, _ in batch.step()]
        if "long" in names:
            break
    assert number < 30


def test_a_turn_that_is_given_up_makes_room(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(engine.model)
    monkeypatch.setattr(engine, "model", counted)
    batch = batch_of(engine, {"long": turn("the house on the hill", max_tokens=400), "short": TURNS["short"]})
    [(first, _)] = batch.step()
    batch.discard("long")
    batch.add("next", TURNS["short"])
    batch.add("never", TURNS["long"])
    batch.discard("never")
    assert [first, *(name for name, _ in ended(batch))] == ["short", "next"]
    assert batch.idle
    assert len(counted.calls) < 20


def test_as_many_are_under_way_as_the_tokens_of_a_batch_allow(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(engine.model)
    monkeypatch.setattr(engine, "model", counted)
    monkeypatch.setattr(engine, "batch_tokens", 3 * 21)
    turns = {str(number): turn(f"what is the colour of house {number}?", max_tokens=10) for number in range(9)}
    assert {row.places for row in map(engine.row, turns.values()) if isinstance(row, Row)} == {21}
    found = ended(batch_of(engine, turns))
    assert sorted(name for name, _ in found) == sorted(turns)
    assert max(rows for rows, _ in counted.calls) == 3


def test_questions_on_one_chunk_are_kept_together(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share the prefill of the chunk only if they are let in at the same time."""
    counted = Counted(engine.model)
    monkeypatch.setattr(engine, "model", counted)
    chunk = "the house on the hill is blue. " * 9
    first = [turn(f"{chunk} question {number}", max_tokens=1 + number) for number in range(4)]
    batch = batch_of(engine, {str(number): one for number, one in enumerate(first)})
    found = batch.step()
    batch.add("next", turn("another chunk", max_tokens=1))
    assert [name for name, _ in found + ended(batch)] == ["0", "1", "2", "3", "next"]
    assert next(rows for rows, tokens in counted.calls if tokens > 1) == 1, "the chunk once"


def test_alike_turns_keep_others_waiting_only_as_long_as_they_are_under_way(engine: LocalEngine) -> None:
    batch = batch_of(engine, {"long": turn("quite another text", max_tokens=100), "first": turn("x", max_tokens=1)})
    found = batch.step()
    chunk = "the house on the hill is blue. " * 9
    for number in range(3):
        batch.add(number, turn(f"{chunk} question {number}", max_tokens=2 + number))
    found += batch.step()
    batch.add("next", turn("another chunk", max_tokens=1))
    assert [name for name, _ in found + ended(batch)] == ["first", 0, 1, 2, "next", "long"]


def test_a_turn_that_cannot_be_encoded_and_a_pass_that_breaks_fail_their_turns_and_no_others(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BreaksOnce(Cramped):
        def __call__(self, **options: Any) -> Any:
            self.refused += 1
            if self.refused == 6:
                raise RuntimeError("a device is gone")
            return self.model(**options)

    whole = engine.row

    def row(turn: Turn) -> Any:
        if turn.user == "x":
            raise KeyError("a template")
        return whole(turn)

    monkeypatch.setattr(engine, "row", row)
    monkeypatch.setattr(engine, "model", BreaksOnce(engine.model, 0))
    batch = batch_of(engine, TURNS)
    found = ended(batch)
    batch.add("next", TURNS["short"])
    found += ended(batch)
    assert {name: type(made) for name, made in found} == {
        "shorter": KeyError,
        "short": Completion,
        "long": RuntimeError,
        "drawn": RuntimeError,
        "next": Completion,
    }


def test_places_of_rows_that_are_done_count_until_they_are_taken(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells: list[int] = []

    class Watched(Counted):
        def __call__(self, **options: Any) -> Any:
            cells.append(options["attention_mask"].numel() if options["attention_mask"] is not None else 0)
            return super().__call__(**options)

    monkeypatch.setattr(engine, "model", Watched(engine.model))
    monkeypatch.setattr(engine, "batch_tokens", 1 << 15)
    short = {name: turn(f"{name} house", max_tokens=2) for name in "ab"}
    batch = batch_of(engine, {**short, **{name: turn(f"{name} house", max_tokens=40) for name in "cdefghi"}})
    assert [name for name, _ in batch.step()] == ["a", "b"]  # less than a quarter: they stay in their places
    wide = engine.row(turn("the house on the hill is blue. " * 9, max_tokens=5))
    assert isinstance(wide, Row)
    assert 8 * wide.places < 9 * len(wide.prompt)
    monkeypatch.setattr(engine, "batch_tokens", 9 * len(wide.prompt) - 1)
    batch.add("wide", turn("the house on the hill is blue. " * 9, max_tokens=5))
    assert "wide" in dict(ended(batch))
    assert max(cells) <= engine.batch_tokens


def test_alike_turns_are_computed_in_one_part_and_others_with_those_of_their_length(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(engine.model)
    monkeypatch.setattr(engine, "model", counted)
    chunk = "the house on the hill is blue. " * 6
    alike = [turn(f"{chunk} question{' indeed' * 9 * number}", max_tokens=1) for number in range(4)]
    ended(batch_of(engine, {str(number): one for number, one in enumerate(alike)}))
    assert [rows for rows, _ in counted.calls] == [1, 4]
    counted.calls.clear()
    unlike = {"a": turn("a house", max_tokens=1), "long": turn("the house on the hill is blue. " * 9, max_tokens=1)}
    ended(batch_of(engine, unlike))
    assert [rows for rows, _ in counted.calls] == [1, 1]


def test_what_is_given_up_before_it_is_told_is_not_told_and_leaves_nothing(engine: LocalEngine) -> None:
    batch = batch_of(engine, {"too long": turn("word " * 600), "long": TURNS["long"], "short": TURNS["short"]})
    names: list[Any] = []
    while "short" not in names:
        names += [name for name, _ in batch.step()]
    batch.add("too long again", turn("word " * 600))
    for name in ("too long again", "long"):
        batch.discard(name)
    assert batch.step() == []
    assert batch._running.shape == (0, 0)


def test_what_does_not_fit_the_window_says_so(engine: LocalEngine) -> None:
    [(name, error), *others] = ended(batch_of(engine, {"too long": turn("word " * 600), **TURNS}))
    assert name == "too long"
    assert isinstance(error, ContextTooLongError)
    assert len(others) == len(TURNS)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_memory_that_runs_out_on_the_way_halves_the_batch_and_loses_nothing(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    turns = {str(seed): turn(f"house {seed}", seed=seed, temperature=seed % 2, max_tokens=5 + seed) for seed in range(7)}
    expected = {name: engine.generate([one])[0].text for name, one in turns.items()}  # type: ignore[union-attr]

    class Counting(Cramped):
        calls = 0

        def __call__(self, **options: Any) -> Any:
            self.calls += 1
            return super().__call__(**options)

    cramped = Counting(engine.model, rows)
    monkeypatch.setattr(engine, "model", cramped)
    monkeypatch.setattr(engine, "batch_tokens", engine.batch_tokens)
    monkeypatch.setattr(continuous.time, "perf_counter", lambda: float(cramped.calls))
    found = dict(ended(batch_of(engine, turns)))
    assert {name: made.text for name, made in found.items() if isinstance(made, Completion)} == expected
    spent = sum(made.seconds for made in found.values() if isinstance(made, Completion))
    assert spent == pytest.approx(cramped.calls), "also what was spent in vain"
    assert cramped.refused
    refused = cramped.refused
    ended(batch_of(engine, turns))
    assert cramped.refused == refused, "the next batches are smaller from the start"


def test_one_turn_that_memory_does_not_hold_fails_and_the_others_go_on(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short(Cramped):
        def __call__(self, **options: Any) -> Any:
            if options["input_ids"].shape[1] > 30:
                raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED")
            return self.model(**options)

    monkeypatch.setattr(engine, "model", Short(engine.model, 0))
    monkeypatch.setattr(engine, "batch_tokens", engine.batch_tokens)
    found = dict(ended(batch_of(engine, TURNS)))
    assert isinstance(found["long"], ModelError)
    assert "out of memory with one prompt" in str(found["long"])
    assert all(isinstance(found[name], Completion) for name in TURNS if name != "long")


def test_engines_whose_model_sees_what_is_masked_or_that_check_whole_drafts_have_no_batch(tmp_path: Any) -> None:
    mpt = transformers.MptConfig(vocab_size=300, d_model=64, n_heads=4, n_layers=2)
    assert LocalEngine(make_tiny_causal(tmp_path / "mpt", mpt), dtype="float32").batch() is None
    assert LocalEngine(make_tiny_model(tmp_path / "lfm2"), dtype="float32").batch() is not None
    assert LocalEngine(tmp_path / "lfm2", dtype="float32", speculate=True).batch() is None
    folder = make_tiny_causal(tmp_path / "llama", transformers.LlamaConfig(**SHAPE))
    engine = LocalEngine(folder, dtype="float32")
    assert engine.batch() is not None
    assert LocalEngine(folder, dtype="float32", speculate=True).batch() is None
    training = LocalEngine.hosting(engine.model, engine._hf_tokenizer, name="policy", version="0")
    assert training.batch() is None


@pytest.mark.parametrize("reader", ["memory", "gated", "parallel"])
def test_readings_end_as_they_do_alone_and_none_waits_for_the_longest(tmp_path: Any, reader: str) -> None:
    make_tiny_causal(tmp_path, transformers.LlamaConfig(**SHAPE))
    opened = replace(open_model(str(tmp_path)), engine=LocalEngine(tmp_path, dtype="float32"))
    budgets = {"question_tokens": 20, "chunk_tokens": 60, "memory_tokens": 24, "answer_tokens": 12}
    chosen = make_settings(opened, model=str(tmp_path), reader=reader, profile="compact", **budgets)
    texts = ["the house on the hill is blue. " * length for length in (4, 30, 12)]
    plans = [make_plan(StringText(text), "Which house is blue?", chosen, opened) for text in texts]
    order: list[int] = []

    def observe(step: Sequence[tuple[int, TurnRecord]]) -> None:
        order.extend(index for index, record in step if record.state.finished)

    together = read_batch(plans, opened.engine, observer=observe)
    for plan, transcript in zip(plans, together, strict=True):
        alone = read(plan, opened.engine)
        assert isinstance(transcript, Transcript)
        assert (transcript.answer, transcript.memory) == (alone.answer, alone.memory)
    assert order == [0, 2, 1]
    again = read_batch(plans, opened.engine)
    assert [one.state for one in again] == [one.state for one in together]  # type: ignore[union-attr]
