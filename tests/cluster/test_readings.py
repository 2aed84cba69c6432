"""Readings on verl: documents by id, the engine over its client, rows with their reward, updates counted in readings."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memagent.cluster.documents import Documents, held_out_ids, training_id
from memagent.cluster.loop import Room, _held_out, rows_of
from memagent.cluster.metrics import cells, summary
from memagent.cluster.run import run
from memagent.cluster.served import served_model
from memagent.cluster.trainer import by_updates
from memagent.driver import aread
from memagent.errors import ConfigError, ContextTooLongError, ModelReplyError
from memagent.evaluation.runner import own_stream
from memagent.models.local import LocalEngine
from memagent.models.open import OpenModel
from memagent.models.sampler import Row
from memagent.scoring import SCORERS
from memagent.settings import make_plan
from memagent.training.credit import parts
from memagent.training.rl_config import AlgorithmConfig, RlConfig
from memagent.training.rollout import as_reading, curriculum_of, policy_settings, with_stream
from memagent.training.run import Launch
from memagent.training.validation import make_held_out, open_held_out
from tests.cluster.conftest import HELD_OUT

Experiment = Callable[..., RlConfig]


class Client:
    """verl's client, in this process: the model answers token ids with token ids."""

    def __init__(self, folder: Path) -> None:
        self.engine = LocalEngine(folder, device="cpu", dtype="float32", record_prompts=True)
        self.asked: list[dict[str, Any]] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        from memagent.core import Sampling

        self.asked.append(sampling_params)
        drawn = Sampling(
            temperature=sampling_params["temperature"], top_p=sampling_params["top_p"], seed=sampling_params["seed"]
        )
        [done] = self.engine.complete([Row(prompt=prompt_ids, max_tokens=sampling_params["max_tokens"], sampling=drawn)])
        return SimpleNamespace(token_ids=list(done.token_ids), log_probs=list(done.logprobs), stop_reason="completed")


def _one(config: RlConfig, opened: OpenModel, step: int = 1) -> Any:
    """A sampled reading of the first document of a batch."""
    folder = Path(config.start)
    documents = Documents(config, opened, folder)
    name, sample = documents.load(training_id(step, 0, 0))
    settings = policy_settings(config, opened, config.rollout)
    plan = with_stream(make_plan(sample.document, sample.question, settings, opened), "5/1/0", 0, 2)
    transcript = asyncio.run(aread(plan, opened.engine))
    return as_reading(name, sample, transcript, AlgorithmConfig())


def test_ids_name_the_documents_of_the_small_trainer(experiment: Experiment, tmp_path: Path) -> None:
    config = experiment("qwen2")
    opened = served_model(Path(config.start))
    curriculum = curriculum_of(config, opened)
    documents = Documents(config, opened, tmp_path)
    for step, attempt in ((0, 0), (2, 0), (0, 1)):
        for place, (name, sample) in enumerate(curriculum.draw(step, attempt, config.rollout.prompts)):
            assert documents.load(training_id(step, attempt, place)) == (name, sample)


def test_held_out_samples_are_those_of_the_small_trainer(experiment: Experiment, tmp_path: Path) -> None:
    config = experiment("qwen2", 'validation.task=[{name = "vt", task = "vt", tokens = [200, 300], samples = 2}]')
    opened = served_model(Path(config.start))
    written = make_held_out(config.validation, tmp_path, opened.engine.tokenizer)
    documents = Documents(config, opened, tmp_path)
    ids = list(held_out_ids(open_held_out(config.validation, tmp_path)))
    assert [cell for _, cell in ids] == ["vt@200", "vt@200", "vt@300", "vt@300"]
    assert [documents.load(name) for name, _ in ids] == [("vt", sample) for sample in written["vt"]]


@pytest.mark.parametrize("kind", ["qwen2", "lfm2"])
def test_a_served_reading_is_that_of_the_engine_in_process(experiment: Experiment, kind: str) -> None:
    config = experiment(kind)
    folder = Path(config.start)
    client = Client(folder)
    served = _one(config, served_model(folder, client, seeded=True))
    assert served == _one(config, OpenModel(engine=client.engine, defaults=served_model(folder).defaults))
    assert {asked["max_tokens"] for asked in client.asked} == {24}
    assert all(asked["stop_token_ids"] == [3] for asked in client.asked)


def test_every_conversation_is_a_row_and_the_last_has_the_reward(experiment: Experiment) -> None:
    config = experiment("qwen2")
    opened = served_model(Path(config.start), Client(Path(config.start)), seeded=True)
    reading = _one(config, opened)
    rows = rows_of(reading, "all", 7, opened.engine.tokenizer)
    conversations = reading.trajectory.conversations
    assert [tuple(row.response_ids) for row in rows] == [one.reply for one in conversations]
    assert all(row.response_mask == [1] * len(row.response_ids) for row in rows)
    assert [row.response_logprobs for row in rows] == [list(one.logprobs) for one in conversations]
    assert [row.reward_score for row in rows] == [None] * (len(rows) - 1) + [reading.trajectory.reward]
    assert {row.extra_fields["min_global_steps"] for row in rows} == {7}
    [final] = rows_of(reading, "final", 7, opened.engine.tokenizer)
    assert final.response_ids == list(conversations[-1].reply)


def test_a_prompt_without_room_and_a_broken_reply_are_errors(experiment: Experiment) -> None:
    from memagent.core import Turn

    folder = Path(experiment("qwen2").start)

    class Broken:
        async def generate(self, **_: Any) -> Any:
            return SimpleNamespace(token_ids=[5, 6], log_probs=[-1.0], stop_reason="aborted")

    engine = served_model(folder, Broken(), seeded=True).engine
    with pytest.raises(ContextTooLongError, match="exceed the window of 512"):
        asyncio.run(engine.agenerate(Turn(id="update-0", kind="update", user="late " * 600, max_tokens=24)))
    with pytest.raises(ModelReplyError, match="2 tokens and 1 log-probabilities"):
        asyncio.run(engine.agenerate(Turn(id="update-0", kind="update", user="late", max_tokens=24)))


def test_updates_are_counted_in_readings_however_many_rows_they_have() -> None:
    rng = random.Random(1)
    for _ in range(20):
        turns = {
            (f"3-0-{group}", member): rng.randint(1, 9)
            for group in rng.sample(range(20), rng.randint(1, 6))
            for member in range(4)
        }
        keys = [f"{group}_{member}_{turn}" for (group, member), count in turns.items() for turn in range(count)]
        rng.shuffle(keys)
        updates = by_updates(keys, 3, seed=5, step=3)
        assert sorted(key for part in updates for key in part) == sorted(keys)
        readings = [[key.rpartition("_")[0] for key in part] for part in updates]
        assert [len(set(part)) for part in readings] == [end - start for start, end in parts(list(turns), 3)]
        assert sum(len(set(part)) for part in readings) == len(turns)  # no reading in two updates
        assert updates == by_updates(sorted(keys), 3, seed=5, step=3)


def test_rewards_of_a_batch_are_over_everything_sampled() -> None:
    readings = [
        {
            "name": "a",
            "reward": 1.0,
            "kept": 3,
            "total": 4,
            "memory_tokens": 10,
            "truncated": 1,
            "skipped": 0.25,
            "tokens": 50,
        },
        {
            "name": "b",
            "reward": 0.0,
            "kept": 0,
            "total": 0,
            "memory_tokens": None,
            "truncated": 0,
            "skipped": 0.0,
            "tokens": 9,
        },
    ]
    found = summary(readings, {"memagent/kept": 1.0, "actor/loss": 0.25}, 1e-3)
    assert found["reward"] == 0.5
    assert (found["reward/a"], found["reward/b"]) == (1.0, 0.0)
    assert (found["retention"], found["truncated"], found["memory_tokens"]) == (0.75, 0.5, 10.0)
    assert (found["kept"], found["loss"], found["lr"]) == (1.0, 0.25, 1e-3)


class Failing:
    """A client whose server has died."""

    async def generate(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("the server has died")


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_held_out_reading_is_scored_by_every_scorer(experiment: Experiment, tmp_path: Path, temperature: float) -> None:
    sampled = f"validation.temperature={temperature}"
    config = experiment("qwen2", HELD_OUT, "rollout.question_tokens=100", sampled)
    client = Client(Path(config.start))
    make_held_out(config.validation, tmp_path / "validation", served_model(Path(config.start)).engine.tokenizer)
    room = Room(config, tmp_path, client)
    name, sample = room.documents.load("validation/vt/0")
    settings = own_stream(room.held_out[name], sample.id, 0)
    plan = make_plan(sample.document, sample.question, settings, room.opened)
    transcript = asyncio.run(aread(plan, room.opened.engine))
    for accepted, expected in ((transcript.answer, 1.0), ("something else", 0.0)):
        client.asked.clear()
        row = asyncio.run(_held_out(room, room.held_out[name], replace(sample, answers=(accepted,), mode="any"), 3))
        told = row.extra_fields["reward_extra_info"]
        assert told.keys() == {*SCORERS, "failed"}
        assert (told["strict"], told["failed"], row.reward_score) == (expected, 0.0, expected)
        assert {asked["temperature"] for asked in client.asked} == {temperature}
        assert tuple(row.response_ids) == transcript.records[-1].completion.token_ids
        assert row.response_mask == [1] * len(row.response_ids)


@pytest.mark.parametrize("question", [100, 40])  # a server that is dead; a question that is longer than its budget
def test_a_held_out_reading_that_fails_counts_as_zero(experiment: Experiment, tmp_path: Path, question: int) -> None:
    config = experiment("qwen2", HELD_OUT, f"rollout.question_tokens={question}")
    make_held_out(config.validation, tmp_path / "validation", served_model(Path(config.start)).engine.tokenizer)
    room = Room(config, tmp_path, Failing() if question == 100 else Client(Path(config.start)))
    name, sample = room.documents.load("validation/vt/0")
    row = asyncio.run(_held_out(room, room.held_out[name], sample, 3))
    assert row.reward_score == 0.0
    assert row.extra_fields["reward_extra_info"] == dict.fromkeys(SCORERS, 0.0) | {"failed": 1.0}
    assert (len(row.response_ids), row.response_mask) == (1, [0])  # verl wants a token; it is trained on by nobody


@pytest.mark.parametrize("kind", ["made", "of a file"])
def test_a_held_out_question_over_its_budget_is_said_before_ray_is_started(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("memagent.cluster.run._ray", lambda config: pytest.fail("Ray is started"))
    config = experiment("qwen2", HELD_OUT, "rollout.question_tokens=100")
    tokenizer = served_model(Path(config.start)).engine.tokenizer
    [sample] = make_held_out(config.validation, tmp_path / "made", tokenizer)["vt"]
    short = tokenizer.count(sample.question) - 1
    of_file = f'validation.task=[{{name = "vt", file = "{tmp_path / "made" / "vt.jsonl"}"}}]'
    config = experiment("qwen2", HELD_OUT if kind == "made" else of_file, f"rollout.question_tokens={short}")
    with pytest.raises(ConfigError, match=rf"'vt'.*budget is {short}.*raise rollout.question_tokens"):
        run(config, Launch(out=tmp_path / "run"))


def test_the_mean_of_a_validation_is_over_its_cells() -> None:
    rows = [{"data_source": cell} for cell in ("vt@200", "vt@200", "vt@200", "qa@900")]
    scores = {"vt@200": (0.5, 1 / 3), "qa@900": (1.0, 0.0)}
    found = {f"val-core/{cell}/reward/mean@1": score for cell, (score, _) in scores.items()}
    found |= {f"val-aux/{cell}/failed/mean@1": failed for cell, (_, failed) in scores.items()}
    assert cells(found, rows) == {
        "vt@200": {"score": 0.5, "n": 3.0, "failed": 1.0},
        "qa@900": {"score": 1.0, "n": 1.0, "failed": 0.0},
        "mean": {"score": 0.75, "n": 4.0},
    }
