"""Readings as trajectories: what is recorded, what is rewarded, what is random, and what is prefilled once."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from memagent.core import Completion, Turn
from memagent.embedded.family import EmbeddedFamily
from memagent.errors import ContextTooLongError, ModelError
from memagent.models.local import LocalEngine
from memagent.models.open import OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.models.speculation import check_drafts
from memagent.settings import Settings, make_settings
from memagent.tasks.lazy_text import LazyText
from memagent.tasks.samples import Fact, Sample
from memagent.training.config import PolicyConfig
from memagent.training.credit import Conversation, Trajectory
from memagent.training.policy import Policy
from memagent.training.reader_worker import ReaderWorker, Rollout
from memagent.training.rl_config import AlgorithmConfig, RlConfig, ValidationConfig, ValidationTask
from memagent.training.rollout import Group, Reading, retention, roll_out, settings_by_name
from memagent.training.validation import Validation, mean_over_parts
from tests.training.tiny import as_batch, make_folder

TEXT = "She came home late. The code of a is 12. Nobody said a word. " * 6


def make_sample(document: str = TEXT, answers: tuple[str, ...] = ("12",), facts: tuple[Fact, ...] = ()) -> Sample:
    return Sample(
        id="s", task="t", question="What is the code of a?", document=LazyText([document]), answers=answers, facts=facts
    )


def settings_for(opened: OpenModel, *, temperature: float = 1.0, chunk: int = 40) -> Settings:
    return make_settings(
        opened,
        model="policy",
        profile="compact",
        question_tokens=40,
        chunk_tokens=chunk,
        memory_tokens=12,
        answer_tokens=8,
        temperature=temperature,
    )


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    torch.set_num_threads(1)
    return Policy(make_folder(tmp_path_factory.mktemp("llama"), "llama"), PolicyConfig(device="cpu"))


def hosted(policy: Policy, **options: Any) -> OpenModel:
    return OpenModel(engine=LocalEngine.hosting(policy.causal, policy.tokenizer, name="policy", version="0", **options))


def always(settings: Settings) -> Mapping[str, Settings]:
    """The same settings for every part."""
    return defaultdict(lambda: settings)


def rolled(
    policy: Policy, samples: Sequence[tuple[str, Sample]], size: int = 3, seed: str = "0", **options: Any
) -> list[Group]:
    opened = hosted(policy, **options)
    return roll_out(samples, size, opened, always(settings_for(opened)), AlgorithmConfig(), seed)


def replies(group: Group) -> list[tuple[tuple[int, ...], ...]]:
    return [tuple(one.reply for one in reading.trajectory.conversations) for reading in group.readings]


def test_readings_of_a_group_differ_and_the_same_seed_gives_them_again(policy: Policy) -> None:
    [group] = rolled(policy, [("a", make_sample())], size=4)
    assert len(set(replies(group))) == 4
    # From the very first turn on, which all of them begin with the same prompt.
    first = [reading.trajectory.conversations[0] for reading in group.readings]
    assert len({one.prompt for one in first}) == 1
    assert len({one.reply for one in first}) == 4
    assert [replies(one) for one in rolled(policy, [("a", make_sample())], size=4)] == [replies(group)]


def test_another_seed_gives_other_readings(policy: Policy) -> None:
    [one], [other] = (rolled(policy, [("a", make_sample())], seed=seed) for seed in ("0/1/0", "0/1/1"))
    assert not set(replies(one)) & set(replies(other))


def test_equal_samples_of_one_batch_are_read_with_streams_of_their_own(policy: Policy) -> None:
    one, other = rolled(policy, [("a", make_sample()), ("b", make_sample())])
    assert not set(replies(one)) & set(replies(other))


def test_the_size_of_a_batch_of_the_engine_changes_no_reading(policy: Policy) -> None:
    samples = [("a", make_sample()), ("b", make_sample(TEXT[20:]))]
    whole, small = rolled(policy, samples), rolled(policy, samples, batch_tokens=100)
    assert [replies(group) for group in whole] == [replies(group) for group in small]


def test_a_trajectory_holds_every_turn_and_the_answer_last(policy: Policy) -> None:
    opened = hosted(policy)
    [group] = roll_out([("a", make_sample())], 2, opened, always(settings_for(opened)), AlgorithmConfig(), "0")
    for reading in group.readings:
        talks = reading.trajectory.conversations
        prompts = [policy.tokenizer.decode(one.prompt) for one in talks]
        assert all("New memory:" in prompt for prompt in prompts[:-1])
        assert "Answer:" in prompts[-1]
        assert "New memory:" not in prompts[-1]
        assert len(talks) == len(reading.memories) + 1 > 4
        assert policy.tokenizer.decode(talks[-1].reply, skip_special_tokens=True).strip() == reading.answer.strip()
        assert reading.memories[-1] in prompts[-1]


def test_recorded_tokens_are_those_of_the_prompt_and_the_reply_and_can_be_scored_again(policy: Policy) -> None:
    [group] = rolled(policy, [("a", make_sample())], size=2)
    talks = [one for reading in group.readings for one in reading.trajectory.conversations]
    for one in talks:
        assert one.prompt[0] == policy.tokenizer.bos_token_id  # the chat form is part of the prompt
        text = policy.tokenizer.decode(one.prompt)
        assert "What is the code of a?" in text
        assert policy.tokenizer.encode(text, add_special_tokens=False) == list(one.prompt)
        assert len(one.reply) <= 12
        assert 3 not in one.reply[:-1]  # the stop token, if it came, is the last
    with torch.no_grad():
        logprob, _ = policy.score(as_batch(talks))
    for row, one in zip(logprob, talks, strict=True):
        assert row[: len(one.reply)].tolist() == pytest.approx(one.logprobs, abs=1e-4)


WORKER: dict[str, Any] = {
    "seed": 1,
    "steps": 1,
    "policy": {"device": "cpu"},
    "books": ["book.txt"],
    "task": [{"name": "a", "task": "niah_single_1", "tokens": [100, 200]}],
    "rollout": {"group": 3},
    "algorithm": {"kl": 0.0},
}


def test_drafts_of_memories_change_no_draw_and_their_log_probabilities_can_be_scored_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the shipped model, because most of its turns repeat the memory."""
    config = RlConfig.model_validate(WORKER | {"start": "embedded"})
    filler = "The sea was grey and the ship went on under a low sky. " * 120
    fact = "One of the special magic numbers for amber-falcon is: 4821973. "
    question = "What is the special magic number for amber-falcon mentioned in the provided text?"
    sample = Sample(id="s", task="t", question=question, document=LazyText([fact + filler]), answers=("4821973",), facts=())
    worker = ReaderWorker(config)
    assert isinstance(worker.opened(0).engine._family, EmbeddedFamily)  # type: ignore[attr-defined]
    shares = Rollout(0, "0", [(0, "a", sample)])
    checked: list[int] = []

    def counted(model: Any, rows: Any, **named: Any) -> None:
        check_drafts(model, rows, **named)
        checked.extend(len(row.ids) for row in rows if row.done)

    monkeypatch.setattr("memagent.models.local.check_drafts", counted)
    [drafted] = worker.roll_out(shares)
    assert len(checked) > 3
    worker._defaults = worker._defaults.model_copy(update={"speculate": False})
    whole = len(checked)
    [plain] = worker.roll_out(shares)
    assert len(checked) == whole
    assert replies(drafted) == replies(plain)
    talks = [one for reading in drafted.readings for one in reading.trajectory.conversations]
    with torch.no_grad():
        logprob, _ = worker.policy.score(as_batch(talks))
    for row, one in zip(logprob, talks, strict=True):
        assert row[: len(one.reply)].tolist() == pytest.approx(one.logprobs, abs=1e-4)


def test_a_policy_reads_with_drafts_only_if_its_folder_says_so(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "llama", "llama")
    config = RlConfig.model_validate(WORKER | {"start": str(folder)})
    assert not ReaderWorker(config).opened(0).engine._speculate  # type: ignore[attr-defined]
    (folder / "memagent.toml").write_text("speculate = true")
    assert ReaderWorker(config).opened(0).engine._speculate  # type: ignore[attr-defined]


def test_replies_that_were_cut_at_their_budget_are_counted(policy: Policy) -> None:
    [group] = rolled(policy, [("a", make_sample())], size=3)
    for reading in group.readings:
        budgets = [12] * len(reading.memories) + [8]
        talks = zip(reading.trajectory.conversations, budgets, strict=True)
        assert reading.truncated == sum(len(one.reply) == budget and one.reply[-1] != 3 for one, budget in talks)
    assert any(reading.truncated for reading in group.readings)


def scripted(reply: Callable[[Turn], str | Exception]) -> OpenModel:
    """An engine that says what `reply` says; its token ids are bytes."""

    def completion(turn: Turn) -> Completion | Exception:
        said = reply(turn)
        if isinstance(said, Exception):
            return said
        ids = tuple(said.encode()) or (0,)
        return Completion(text=said, prompt_ids=tuple(turn.user.encode()), token_ids=ids, logprobs=(-1.0,) * len(ids))

    return OpenModel(engine=ScriptedModel(completion, window=4096))


def read(reply: Callable[[Turn], str | Exception], size: int = 2, samples: int = 1, reward: str = "strict") -> list[Group]:
    opened = scripted(reply)
    settings = replace(settings_for(opened, chunk=150), budgets=replace(settings_for(opened, chunk=150).budgets, memory=60))
    parts, algorithm = [(f"part {n}", make_sample()) for n in range(samples)], AlgorithmConfig(reward=reward)
    return roll_out(parts, size, opened, always(settings), algorithm, "0")


def test_the_reward_judges_the_answer_and_no_memory() -> None:
    [right] = read(lambda turn: "12" if turn.kind == "answer" else "nothing yet")
    assert right.rewards == [1.0, 1.0]
    [wrong] = read(lambda turn: "12" if turn.kind == "update" else "unknown")
    assert wrong.rewards == [0.0, 0.0]
    assert [reading.answer for reading in wrong.readings] == ["unknown"] * 2
    assert wrong.readings[0].memories == ("12",) * 3


def test_the_reward_is_the_scorer_that_is_named() -> None:
    [group] = read(lambda turn: "it is 12", reward="contains")
    assert group.rewards == [1.0, 1.0]
    [group] = read(lambda turn: "it is 12", reward="strict")
    assert group.rewards == [0.0, 0.0]


def seed_of(turn: Turn) -> int:
    assert turn.sampling.seed is not None
    return turn.sampling.seed


def test_every_turn_of_every_reading_has_a_seed_of_its_own() -> None:
    seeds: list[int] = []

    def reply(turn: Turn) -> str:
        seeds.append(seed_of(turn))
        return "12"

    read(reply, size=5, samples=3)
    assert len(set(seeds)) == len(seeds) == 5 * 3 * 4  # three updates and an answer
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_group_is_kept_if_its_readings_are_not_all_worth_the_same() -> None:
    seen: list[Turn] = []

    def first_answer_is_right(turn: Turn) -> str:
        if turn.kind == "answer":
            seen.append(turn)
            return "12" if len(seen) == 1 else "13"
        return "nothing yet"

    mixed, equal = read(first_answer_is_right, size=3, samples=2)
    assert mixed.rewards == [1.0, 0.0, 0.0]
    assert mixed.kept
    assert equal.rewards == [0.0, 0.0, 0.0]
    assert not equal.kept
    [perfect] = read(lambda turn: "12")
    assert not perfect.kept


@pytest.mark.parametrize("failure", [ContextTooLongError("too long"), ModelError("the engine failed")])
def test_a_reading_that_fails_is_counted_in_its_group_and_the_others_go_on(failure: Exception) -> None:
    answers = 0

    def reply(turn: Turn) -> str | Exception:
        nonlocal answers
        if turn.kind == "update":
            return "nothing yet"
        answers += 1
        return failure if answers == 2 else "12" if answers == 3 else "13"

    broken, whole = read(reply, size=3, samples=2)
    assert broken.failed == 1
    assert len(broken.readings) == 2
    assert broken.rewards == [0.0, 1.0]
    assert not broken.kept  # although its rewards differ
    assert (whole.failed, len(whole.readings)) == (0, 3)


def test_a_group_of_which_every_reading_failed_is_not_kept() -> None:
    [group] = read(lambda turn: ModelError("the engine failed"))
    assert (group.failed, group.readings, group.rewards) == (2, (), [])
    assert not group.kept


def test_a_chunk_that_does_not_fit_is_split_and_only_what_was_generated_is_recorded() -> None:
    asked = 0

    def reply(turn: Turn) -> str | Exception:
        nonlocal asked
        asked += 1
        too_long = sum(map(len, turn.spans)) > 100
        return ContextTooLongError("too long") if too_long else "12"

    [group] = read(reply, size=1)
    talks = group.readings[0].trajectory.conversations
    assert group.failed == 0
    assert asked > len(talks) > 4
    assert len(group.readings[0].memories) == len(talks) - 1


def test_names_and_samples_stay_with_their_readings() -> None:
    groups = read(lambda turn: "12", size=2, samples=3)
    assert [[reading.name for reading in group.readings] for group in groups] == [[f"part {n}"] * 2 for n in range(3)]


def noting(memories: tuple[str, ...], *values: str, needed: bool = True) -> Reading:
    facts = tuple(Fact(text="x", start=0, end=1, value=value, needed=needed) for value in values)
    trajectory = Trajectory((Conversation((4,), (5,), (-1.0,)),), 0.0)
    sample = make_sample(facts=facts)
    return Reading(sample=sample, name="n", trajectory=trajectory, answer="", memories=memories, truncated=0)


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (noting(("a: 12", "a: 12", "a: 12"), "12"), (2, 2)),
        (noting(("a: 12", "nothing", "nothing"), "12"), (0, 1)),  # lost once; what is gone cannot be lost again
        (noting(("a: 12", "nothing", "a: 12", "a: 12"), "12"), (1, 2)),
        (noting(("nothing", "a: 12"), "12"), (0, 0)),  # noted by the last update
        (noting(("a: 12, b: 7", "b: 7", "b: 7"), "12", "7"), (2, 3)),
        (noting(("a: 12", "a: 123"), "12"), (0, 1)),  # 12 does not stand in 123
        (noting(("a: 12", "nothing"), "12", needed=False), (0, 0)),
        (noting(("a: 12", "nothing"), ""), (0, 0)),
        (noting(("a: 12",), "12"), (0, 0)),
        (noting((), "12"), (0, 0)),
    ],
)
def test_retention_counts_the_needed_facts_that_an_update_found_noted_and_left_noted(
    reading: Reading, expected: tuple[int, int]
) -> None:
    assert retention([reading]) == expected
    assert retention([reading, reading]) == (2 * expected[0], 2 * expected[1])


def test_the_readings_of_a_group_share_the_prefill_of_their_first_turn(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefilled: list[int] = []
    forward = type(policy.causal).forward

    def counted(model: Any, input_ids: Any = None, **options: Any) -> Any:
        if not (cache := options.get("past_key_values")) or not cache.get_seq_length():
            prefilled.append(len(input_ids))
        return forward(model, input_ids=input_ids, **options)

    monkeypatch.setattr(type(policy.causal), "forward", counted)
    groups = rolled(policy, [("a", make_sample()), ("b", make_sample(TEXT[20:]))], size=4)
    assert prefilled[0] == 2  # eight readings of two documents
    turns = [one for group in groups for reading in group.readings for one in reading.trajectory.conversations]
    assert sum(prefilled) < len(turns)
    assert math.isfinite(sum(sum(one.logprobs) for one in turns))


def test_every_part_is_read_by_its_own_reader() -> None:
    opened = scripted(lambda turn: "12" if turn.kind == "answer" else "nothing new")
    settings = {
        reader: replace(settings_for(opened, chunk=150), reader=reader) for reader in ("memory", "gated", "parallel")
    }
    groups = roll_out([(reader, make_sample()) for reader in settings], 2, opened, settings, AlgorithmConfig(), "0")
    skipped = {group.readings[0].name: group.readings[0].skipped for group in groups}
    assert skipped["memory"] == 0
    assert 0 < skipped["gated"] < 1
    assert skipped["parallel"] == skipped["gated"]  # one round, and the answer


def test_rounds_are_rewarded_by_how_many_the_reader_of_the_part_may_have() -> None:
    opened = scripted(lambda turn: "12" if turn.kind == "answer" else "nothing new")
    usual = replace(settings_for(opened, chunk=150), reader="parallel")
    settings = {name: replace(usual, reader_options={"rounds": rounds}) for name, rounds in (("one", 1), ("five", 5))}
    algorithm = AlgorithmConfig(shaping={"fewer_rounds": 0.5})
    groups = roll_out([(name, make_sample()) for name in settings], 2, opened, settings, algorithm, "0")
    assert [group.rewards for group in groups] == [[1.0, 1.0], [1.5, 1.5]]  # one round was read


def test_a_part_has_the_reader_and_the_options_of_the_rollout_unless_it_names_its_own() -> None:
    opened = scripted(lambda turn: "")
    part = {"task": "vt", "tokens": [100, 200]}
    parts = [
        {"name": "usual"},
        {"name": "fewer", "reader_options": {"rounds": 1}},
        {"name": "same", "reader": "parallel"},
        {"name": "other", "reader": "gated"},
        {"name": "exit", "reader": "gated", "reader_options": {"exit": True}},
    ]
    rollout = {"reader": "parallel", "reader_options": {"rounds": 2}, "profile": "default"}
    config = RlConfig.model_validate(
        {"start": "x", "steps": 1, "books": ["book"], "rollout": rollout, "task": [{**part, **one} for one in parts]}
    )
    made = settings_by_name(config, opened, config.rollout, config.task)
    assert {name: (one.reader, one.reader_options) for name, one in made.items()} == {
        "usual": ("parallel", {"rounds": 2}),
        "fewer": ("parallel", {"rounds": 1}),
        "same": ("parallel", {"rounds": 2}),
        "other": ("gated", {"exit": False}),
        "exit": ("gated", {"exit": True}),
    }
    held_out = settings_by_name(config, opened, config.validation, config.task)
    assert {one.sampling.temperature for one in held_out.values()} == {0.0}


@pytest.mark.parametrize(("reward", "rewards"), [({}, [1.0, 1.0]), ({"reward": "strict"}, [0.0, 0.0])])
def test_a_sample_that_names_its_scorer_is_rewarded_by_it(reward: dict[str, str], rewards: list[float]) -> None:
    opened = scripted(lambda turn: "it is 12")
    settings = settings_for(opened, chunk=150)
    sample = replace(make_sample(), scorer="contains")
    [group] = roll_out([("part", sample)], 2, opened, always(settings), AlgorithmConfig(**reward), "0")
    assert group.rewards == rewards


def test_one_sample_weighs_no_more_than_the_others_of_its_part() -> None:
    cells = {"hqa@32768": [1.0] * 9, "hqa@65536": [0.0], "vt@4096": [0.5] * 10, "vt@16384": [0.1] * 10}
    assert mean_over_parts(cells) == pytest.approx((0.9 + 0.3) / 2)


@pytest.mark.parametrize(("score", "mean"), [({}, 1.0), ({"score": "strict"}, 0.0)])
def test_a_sample_that_names_its_scorer_is_validated_by_it(tmp_path: Path, score: dict[str, str], mean: float) -> None:
    line = {"id": "s", "question": "Which?", "document": "It is 12. " * 20, "answers": ["12"], "scorer": "contains"}
    (tmp_path / "given.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    task = ValidationTask(name="given", file=tmp_path / "given.jsonl")
    opened = scripted(lambda turn: "it is 12")
    validation = Validation(ValidationConfig(task=[task], **score), tmp_path / "out", opened.engine.tokenizer)
    found = validation.run(0, opened, always(settings_for(opened, chunk=150)))
    assert found["mean"] == {"score": mean, "n": 1.0}
