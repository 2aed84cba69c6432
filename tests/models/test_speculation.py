"""A draft changes no reply: not its tokens, their log-probabilities, nor its end."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent.core import Sampling, Turn
from memagent.embedded.family import EmbeddedFamily
from memagent.errors import ConfigError, ContextTooLongError
from memagent.models import speculation
from memagent.models.kinds import takes_drafts
from memagent.models.local import LocalEngine
from memagent.models.open import open_model
from memagent.models.sampler import Row, sample
from memagent.models.speculation import check_drafts
from tests.models.tiny import SHAPE, Counted, make_tiny_model, open_tiny_model

CONFIGS: dict[str, Any] = {
    "llama": transformers.LlamaConfig(**SHAPE),
    "sliding": transformers.MistralConfig(**SHAPE, sliding_window=16),
    "learned positions": transformers.GPT2Config(
        vocab_size=300, n_positions=512, n_embd=64, n_layer=2, n_head=4, initializer_range=0.15
    ),
}
LENGTHS = (40, 25, 3, 130, 40)


@pytest.fixture(scope="module", params=["lfm2", *CONFIGS])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.set_num_threads(1)
    return open_tiny_model(tmp_path_factory.mktemp("model"), CONFIGS.get(request.param))


GREEDY = Sampling()
SAMPLINGS = {
    "greedy": GREEDY,
    "sampled": Sampling(temperature=1.3, seed=5),
    "from a nucleus": Sampling(temperature=0.9, top_p=0.6, seed=6),
}


def rows(guesses: Sequence[Sequence[int]] = ((),) * len(LENGTHS), sampling: Sampling = GREEDY) -> list[Row]:
    draw = random.Random(0)
    prompts = [[draw.randrange(4, 300) for _ in range(length)] for length in LENGTHS]
    return [
        Row(prompt=prompt, max_tokens=(12, 7)[number % 2], sampling=sampling, draft=guess)
        for number, (prompt, guess) in enumerate(zip(prompts, guesses, strict=True))
    ]


@pytest.fixture(scope="module")
def stop(model: Any) -> frozenset[int]:
    """What some of the replies hold and some do not: they end there, the others run to their budget."""
    batch = rows()
    sample(model, batch, stop_ids=frozenset(), pad_id=0)
    chosen = frozenset({batch[0].ids[3], batch[3].ids[1]})
    assert any(not chosen & set(row.ids) for row in batch)
    return chosen


def generate(model: Any, batch: list[Row], stop: frozenset[int]) -> list[Row]:
    check_drafts(model, [row for row in batch if row.draft], stop_ids=stop, pad_id=0)
    if going := [row for row in batch if not row.done]:
        sample(model, going, stop_ids=stop, pad_id=0)
    return batch


def reply(row: Row) -> list[int]:
    """What a draft that is right says: the reply without the token that ended it."""
    return row.ids[:-1]


def assert_equal(drafted: Sequence[Row], plain: Sequence[Row]) -> None:
    for one, other in zip(drafted, plain, strict=True):
        assert one.ids == other.ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        assert one.finish == other.finish


WAYS = {
    "right": lambda ids: ids,
    "cut short": lambda ids: ids[: len(ids) // 2],
    "too long": lambda ids: [*ids, 77, 78],
    "wrong at once": lambda ids: [ids[0] ^ 1, *ids[1:]] if ids else [50],
    "wrong at the end": lambda ids: [*ids[:-1], ids[-1] ^ 1] if ids else [50],
    "none": lambda ids: [],
}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=list(SAMPLINGS))
@pytest.mark.parametrize("way", WAYS)
def test_replies_are_those_without_a_draft(model: Any, stop: frozenset[int], way: str, sampling: Sampling) -> None:
    plain = generate(model, rows(sampling=sampling), stop)
    if sampling is GREEDY:
        assert {row.finish for row in plain} == {"stop", "length"}
    guesses = [WAYS[way](reply(row))[: row.max_tokens - 1] for row in plain]
    assert_equal(generate(model, rows(guesses, sampling), stop), plain)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_the_drafts_are(model: Any, stop: frozenset[int], data: st.DataObject) -> None:
    sampling = data.draw(st.sampled_from([*SAMPLINGS.values()]))
    plain = generate(model, rows(sampling=sampling), stop)
    tail = st.lists(st.integers(0, 299), max_size=5)
    guesses = [[*row.ids[: data.draw(st.integers(0, 12))], *data.draw(tail)][: row.max_tokens - 1] for row in plain]
    assert_equal(generate(model, rows(guesses, sampling), stop), plain)


def test_rows_that_are_sampled_differ_though_their_drafts_do_not(model: Any) -> None:
    batch = [
        Row(prompt=[7] * 20, max_tokens=8, sampling=Sampling(temperature=1.3, seed=seed), draft=[9] * 8)
        for seed in range(9)
    ]
    counted = Counted(model)
    check_drafts(counted, batch, stop_ids=frozenset(), pad_id=0)
    assert counted.calls == [(1, 28)]
    assert len({tuple(row.ids) for row in batch}) > 4


def test_a_reply_that_is_its_draft_takes_one_pass(model: Any, stop: frozenset[int]) -> None:
    plain = generate(model, rows(), stop)
    drafted = [row for row in rows([reply(row) for row in plain]) if row.draft]
    assert len(drafted) > 2
    counted = Counted(model)
    generate(counted, drafted, stop)
    assert counted.calls == [(len(drafted), max(len(row.prompt) + len(row.draft) for row in drafted))]


def test_a_draft_that_fails_late_leaves_little_to_generate(model: Any, stop: frozenset[int]) -> None:
    plain = generate(model, rows(), stop)
    index, longest = max(enumerate(plain), key=lambda item: len(item[1].ids))
    guesses: list[list[int]] = [[] for _ in plain]
    guesses[index] = [*longest.ids[:-2], longest.ids[-2] ^ 1]
    row = rows(guesses)[index]
    counted = Counted(model)
    generate(counted, [row], stop)
    assert row.ids == longest.ids
    assert len(counted.calls) == 2  # the draft, and the one token that was left


def test_equal_prompts_with_equal_drafts_are_computed_once(model: Any) -> None:
    counted = Counted(model)
    same = [Row(prompt=[7] * 20, max_tokens=4, sampling=Sampling(), draft=[9, 8]) for _ in range(3)]
    other = Row(prompt=[7] * 20, max_tokens=4, sampling=Sampling(), draft=[9])
    boundary = Row(prompt=[7] * 20 + [9], max_tokens=4, sampling=Sampling(), draft=[8])  # the same ids, cut elsewhere
    check_drafts(counted, [*same, other, boundary], stop_ids=frozenset(), pad_id=0)
    assert counted.calls == [(3, 22)]
    assert same[0].ids == same[1].ids == same[2].ids


def test_the_logits_of_many_drafts_are_computed_in_parts(
    model: Any, stop: frozenset[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = generate(model, rows(), stop)
    guesses = [(reply(row) + [5] * 11)[: row.max_tokens - 1] for row in plain]
    monkeypatch.setattr(speculation, "_LOGITS", 2 * 12 * model.config.vocab_size)
    counted = Counted(model)
    check_drafts(counted, rows(guesses), stop_ids=stop, pad_id=0)
    assert [size for size, _ in counted.calls] == [2, 2, 1]
    assert_equal(generate(model, rows(guesses), stop), plain)


def test_of_a_long_draft_as_much_is_checked_as_fits(
    model: Any, stop: frozenset[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = generate(model, rows(), stop)
    guesses = [reply(row) for row in plain]
    monkeypatch.setattr(speculation, "_LOGITS", 4 * model.config.vocab_size)
    checked = rows(guesses)
    counted = Counted(model)
    check_drafts(counted, [row for row in checked if row.draft], stop_ids=stop, pad_id=0)
    assert max(len(row.ids) for row in checked) == 4  # three of the draft, and what follows them
    assert all(width <= max(LENGTHS) + 3 for _, width in counted.calls)
    assert_equal(generate(model, rows(guesses), stop), plain)


@given(lengths=st.lists(st.integers(1, 20), max_size=12), most=st.integers(2, 60))
def test_no_part_has_more_places_than_there_is_room_for(lengths: list[int], most: int) -> None:
    batch = [Row(prompt=[7], max_tokens=30, sampling=Sampling(), draft=[9] * length) for length in lengths]
    parts = list(speculation._parts(batch, most))
    assert [row for part in parts for row, _ in part] == batch
    assert all(list(draft) == [9] * min(len(row.draft), most - 1) for part in parts for row, draft in part)
    places = [len(part) * max(1 + len(draft) for _, draft in part) for part in parts]
    assert all(count <= most for count in places)
    for part, (following, *_) in pairwise(parts):  # no part ends early
        joined = [*part, following]
        assert len(joined) * max(1 + len(draft) for _, draft in joined) > most


def test_models_whose_positions_depend_on_the_length_take_none() -> None:
    assert all(takes_drafts(config) for config in CONFIGS.values())
    long = {"rope_type": "longrope", "rope_theta": 1e4, "long_factor": [1.0] * 8, "short_factor": [1.0] * 8, "factor": 2.0}
    scaled = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    for parameters in (long, scaled):
        assert not takes_drafts(transformers.LlamaConfig(**SHAPE, rope_parameters=parameters))
    for parameters, taken in ((long, False), ({"rope_type": "default", "rope_theta": 1e4}, True)):
        mixed = transformers.Gemma3TextConfig(**SHAPE, rope_parameters={"full_attention": parameters})
        assert takes_drafts(mixed) == taken  # one of the kinds of layer is enough


def test_an_engine_leaves_drafts_out_for_such_models(tmp_path: Any) -> None:
    folder = make_tiny_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    (folder / "config.json").write_text(json.dumps(config))
    plain = LocalEngine(folder, dtype="float32")
    [reply] = plain.generate([turn("a house")])
    [given], passes = calls(LocalEngine(folder, dtype="float32", speculate=True), [turn("a house", reply.text)])
    assert given.token_ids == reply.token_ids
    assert len(passes) == len(reply.token_ids)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_tiny_model(tmp_path_factory.mktemp("engine"))


def turn(text: str, draft: str = "", *, temperature: float = 0.0, max_tokens: int = 12) -> Turn:
    sampling = Sampling(temperature=temperature, seed=1)
    return Turn(kind="update", id="chunk-1", user=text, max_tokens=max_tokens, sampling=sampling, draft=draft)


def calls(engine: LocalEngine, turns: Sequence[Turn]) -> tuple[list[Any], list[tuple[int, ...]]]:
    """What the engine gives, and the passes it took."""
    model, counted = engine.model, Counted(engine.model)
    engine.model = counted
    try:
        return engine.generate(turns), counted.calls
    finally:
        engine.model = model


@pytest.fixture(scope="module")
def engine(folder: Any) -> LocalEngine:
    return LocalEngine(folder, dtype="float32", speculate=True)


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_an_engine_checks_the_draft_of_a_turn(engine: LocalEngine, temperature: float) -> None:
    [plain], long = calls(engine, [turn("a house", temperature=temperature)])
    [drafted], short = calls(engine, [turn("a house", plain.text, temperature=temperature)])
    assert (drafted.token_ids, drafted.text, drafted.finish) == (plain.token_ids, plain.text, plain.finish)
    assert len(short) < len(long) == len(plain.token_ids)


def test_a_draft_is_checked_up_to_the_budget_of_the_reply(engine: LocalEngine) -> None:
    [plain] = engine.generate([turn("a house", max_tokens=5)])
    [drafted], passes = calls(engine, [turn("a house", "a draft that is longer than it. " * 9, max_tokens=5)])
    assert passes[0] == (1, plain.prompt_tokens + 5)
    assert drafted.token_ids == plain.token_ids


@pytest.mark.parametrize("at_once", [1, 1 << 15])
def test_turns_with_and_without_drafts_keep_their_places(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    texts = ["a house", "the house on the hill is blue. " * 5, "Москва 東京 1234567", "x", "word " * 600]
    plain = engine.generate([turn(text) for text in texts])
    guesses = [plain[0].text, "", "something else", plain[3].text, "too long a prompt"]
    monkeypatch.setattr(engine, "batch_tokens", at_once)
    drafted = engine.generate([turn(text, guess) for text, guess in zip(texts, guesses, strict=True)])
    assert [one.token_ids for one in drafted[:4]] == [one.token_ids for one in plain[:4]]
    assert isinstance(drafted[4], ContextTooLongError)
    assert all(one.seconds > 0 for one in drafted[:4])


@pytest.mark.parametrize(("off", "options"), [("asked", {"speculate": False}), ("one token", {}), ("in training", {})])
def test_what_is_not_drafted(folder: Any, off: str, options: dict[str, Any]) -> None:
    engine = LocalEngine(folder, dtype="float32", **{"speculate": True, **options})
    if off == "in training":
        engine = LocalEngine.hosting(engine.model, engine._hf_tokenizer, name="policy", version="0")
    how: dict[str, Any] = {"one token": {"max_tokens": 1}}.get(off, {})
    [plain], _ = calls(engine, [turn("a house", **how)])
    _, passes = calls(engine, [turn("a house", plain.text, **how)])
    assert len(passes) == len(plain.token_ids)


def test_a_draft_for_which_there_is_no_memory_is_left_out(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    [plain] = engine.generate([turn("a house")])

    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr("memagent.models.local.check_drafts", full)
    [drafted] = engine.generate([turn("a house", plain.text)])
    assert drafted.token_ids == plain.token_ids


def test_a_draft_that_looks_like_special_tokens_is_text(engine: LocalEngine) -> None:
    text = "<|end|> é<|reply|>"
    ids = engine._chat.encode_reply(text)
    assert min(ids) > 3
    assert engine._hf_tokenizer.decode(ids) == text


@pytest.mark.parametrize("old", ['memory_line = "- .+: .+"', "[drafts]\nlenience = 0.5"])
def test_keys_that_are_gone_are_told_the_new_ones(tmp_path: Any, old: str) -> None:
    folder = make_tiny_model(tmp_path / "model")
    (folder / "memagent.toml").write_text(old)
    with pytest.raises(ConfigError, match=r"memagent\.toml: .* is no longer a key: .* family = \"embedded\""):
        open_model(str(folder))


def test_a_family_says_how_a_reply_is_written(folder: Any) -> None:
    engine = LocalEngine(folder, dtype="float32", family=EmbeddedFamily(), speculate=True)
    assert EmbeddedFamily().written("- amber: 12") == "- amber: 12"
    row = engine.row(turn("a house", "nothing new", max_tokens=40))
    assert isinstance(row, Row)
    written = engine._chat.encode_reply(" nothing new")
    assert row.draft[: len(written)] == written != engine._chat.encode_reply("nothing new")


def test_an_unknown_family_is_refused_with_those_there_are(tmp_path: Any) -> None:
    folder = make_tiny_model(tmp_path / "model")
    (folder / "memagent.toml").write_text('family = "guess"')
    with pytest.raises(ConfigError, match="unknown model family 'guess': use one of embedded"):
        open_model(str(folder))


def test_a_model_folder_says_whether_to_speculate_and_what_family_it_is_of(tmp_path: Any) -> None:
    folder = make_tiny_model(tmp_path / "model")
    plain = open_model(str(folder))
    assert (plain.engine._speculate, plain.engine._family) == (False, None)  # type: ignore[attr-defined]
    (folder / "memagent.toml").write_text("speculate = true")
    exact = open_model(str(folder))
    assert exact.engine._speculate  # type: ignore[attr-defined]
    assert exact.engine.identity == plain.engine.identity
    embedded = open_model("embedded")
    assert embedded.engine.identity.startswith("embedded@")
