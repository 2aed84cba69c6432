"""What a run will take, held against what runs take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers

from memagent.errors import TrainingError
from memagent.training.config import PRESETS, LoraConfig, PolicyConfig, SftConfig, load_config
from memagent.training.forecast import _active, forecast_rl, forecast_sft
from memagent.training.policy import Policy
from memagent.training.products import measured_flops, slower_in_bf16
from memagent.training.recipe import read_stage
from memagent.training.rl import Trainer
from memagent.training.rl_config import RlConfig, RolloutConfig, TaskMix
from tests.training.tiny import make_config, make_folder


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("He came home late that evening. Nobody said a word about it.\n\n" * 60)
    return path


@pytest.fixture
def planned(tmp_path: Path, book: Path) -> Callable[..., RlConfig]:
    def make(kind: str = "llama", **changes: Any) -> RlConfig:
        folder = make_folder(tmp_path / kind, kind)
        budgets = {"chunk_tokens": 160, "memory_tokens": 48, "question_tokens": 48, "answer_tokens": 32}
        values: dict[str, Any] = {
            "start": str(folder),
            "steps": 3,
            "books": [book],
            "rollout": RolloutConfig(prompts=2, group=4, resample=0, profile="compact", **budgets),
            "task": [TaskMix(name="one", task="niah_single_2", tokens=(600, 700))],
        }
        return RlConfig(**{**values, **changes})

    return make


@pytest.mark.parametrize("kind", ["llama", "qwen2", "lfm2"])
def test_parameters_are_those_of_the_model(planned: Callable[..., RlConfig], tmp_path: Path, kind: str) -> None:
    config = planned(kind)
    found = forecast_rl(config)
    policy = Policy(tmp_path / kind, config.policy)
    assert found.parameters == sum(value.numel() for value in policy.causal.parameters())
    assert found.trained == found.parameters == sum(value.numel() for value in policy.parameters())
    assert found.memory["weights"] == 4 * found.parameters


@pytest.mark.parametrize("targets", [(), ("q_proj", "v_proj")])
def test_trained_parameters_are_those_of_the_adapters(
    planned: Callable[..., RlConfig], tmp_path: Path, targets: tuple[str, ...]
) -> None:
    lora = PolicyConfig(lora=LoraConfig(rank=4, targets=targets))
    found = forecast_rl(planned(policy=lora))
    policy = Policy(tmp_path / "llama", lora)
    assert isinstance(policy.adapter, peft.PeftModel)
    assert found.trained == sum(value.numel() for value in policy.parameters())
    assert "reference" not in found.memory, "with adapters it is the model without them"


def test_a_batch_has_as_many_turns_and_no_more_tokens(planned: Callable[..., RlConfig], tmp_path: Path) -> None:
    config = planned()
    config = config.model_copy(update={"rollout": config.rollout.model_copy(update={"rules": "paper"})})
    found = forecast_rl(config)
    batch = Trainer(config, tmp_path / "out").sample()
    conversations = [one for reading in batch.readings for one in reading.trajectory.conversations]
    assert found.readings == len(batch.readings) == 8
    assert abs(len(conversations) / 8 - found.turns) < 1, "documents are of unlike length"
    count = len(conversations) / 8 / found.turns
    assert 0.5 < sum(len(one.prompt) for one in conversations) / count / found.prompt_tokens <= 1
    more = len(conversations) - found.readings * found.turns
    assert sum(len(one.reply) for one in conversations) <= found.reply_tokens + 48 * more + 1


def test_memory_is_that_of_what_is_asked_for(planned: Callable[..., RlConfig]) -> None:
    plain = forecast_rl(planned())
    assert plain.peak == sum(plain.memory.values()) - min(plain.memory["an update"], plain.memory["sampling"])
    half = forecast_rl(planned(policy=PolicyConfig(dtype="bfloat16", lora=LoraConfig(rank=4))))
    assert half.memory["weights"] == plain.memory["weights"] / 2
    assert half.memory["sampling"] == plain.memory["sampling"] / 2
    saving = forecast_rl(planned(policy=PolicyConfig(checkpointing=True)))
    assert saving.memory["an update"] < plain.memory["an update"]
    assert saving.update_flops > plain.update_flops
    config = planned()
    without = config.model_copy(update={"algorithm": config.algorithm.model_copy(update={"kl": 0.0})})
    assert "reference" not in forecast_rl(without).memory
    assert forecast_rl(without).update_flops < plain.update_flops


def test_an_update_holds_at_least_one_conversation(planned: Callable[..., RlConfig]) -> None:
    config = planned()
    small, least = (
        forecast_rl(config.model_copy(update={"update": config.update.model_copy(update={"batch_tokens": tokens})}))
        for tokens in (64, 160 + 48 + 48 + 48)
    )
    assert small.memory["an update"] == least.memory["an update"]


def test_a_run_of_more_steps_takes_longer_in_proportion(planned: Callable[..., RlConfig]) -> None:
    short, long = forecast_rl(planned(steps=3)), forecast_rl(planned(steps=300))
    assert long.flops == pytest.approx(100 * short.flops, rel=0.05)  # other documents are drawn
    assert long.peak == pytest.approx(short.peak, rel=0.01)


@pytest.mark.parametrize(("lora", "passes"), [(0, 8), (4, 6)])
def test_an_update_computes_with_all_but_what_is_only_looked_up(
    planned: Callable[..., RlConfig], lora: int, passes: int
) -> None:
    found = forecast_rl(planned("qwen2", policy=PolicyConfig(lora=LoraConfig(rank=lora))))
    embedding = make_config("qwen2").vocab_size * make_config("qwen2").hidden_size  # which is not that of the head
    products = (found.parameters - embedding) * (found.prompt_tokens + found.reply_tokens)
    assert (found.sampling_flops, found.update_flops) == (2 * products, passes * products)


def test_of_experts_a_token_is_given_to_some() -> None:
    shape = {"vocab_size": 50, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    with torch.device("meta"):
        few, all_of_them = (
            transformers.MixtralForCausalLM(
                transformers.MixtralConfig(**shape, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=count)
            )
            for count in (1, 4)
        )
    assert _active(all_of_them) - _active(few) == 3 * 3 * 8 * 16


def test_what_is_measured_leaves_the_draws_of_a_run_as_they_are() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    assert slower_in_bf16(PolicyConfig(device="cpu", bf16=True)) > 0.0
    assert torch.equal(torch.rand(4), expected)


def test_a_policy_that_multiplies_in_float32_cannot_be_slower_in_bfloat16() -> None:
    assert slower_in_bf16(PolicyConfig(device="cpu")) == 0.0


def test_a_supervised_run_of_the_recipe() -> None:
    config, _ = read_stage("embedded:copying", SftConfig, [])
    found = forecast_sft(config)
    assert found.steps == config.schedule.steps
    assert found.prompt_tokens == config.schedule.batches * config.schedule.batch_tokens
    assert found.update_flops == 6 * found.parameters * found.prompt_tokens
    assert found.readings == 0


def test_nothing_of_the_model_is_held(planned: Callable[..., RlConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    config = planned()

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("weights were opened")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", refuse)
    (Path(config.start) / "model.safetensors").unlink()
    assert forecast_rl(config).parameters > 0


def test_what_is_no_model_is_named(planned: Callable[..., RlConfig], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TrainingError, match=r"no model in .*empty: set `start` to a Hugging Face folder"):
        forecast_rl(planned(start=str(tmp_path / "empty")))


def test_the_speed_of_this_machine_is_that_of_products() -> None:
    torch.set_num_threads(1)
    assert 1e8 < measured_flops(PolicyConfig(), seconds=0.05) < 1e15


# The table of hyper-parameters of the release (arXiv 2507.02259 and its code).
RELEASED = {
    "rollout.group": 16,
    "rollout.prompts": 128,
    "rollout.resample": 0,
    "rollout.temperature": 1.0,
    "rollout.top_p": 1.0,
    "rollout.rules": "paper",
    "rollout.chunk_tokens": 5000,
    "rollout.memory_tokens": 1024,
    "rollout.question_tokens": 1024,
    "rollout.answer_tokens": 1024,
    "algorithm.reward": "strict",
    "algorithm.credit": "all",
    "algorithm.normalise": "none",
    "algorithm.aggregate": "token",
    "algorithm.clip_low": 0.2,
    "algorithm.clip_high": 0.2,
    "algorithm.dual_clip": 3.0,
    "algorithm.kl": 1e-3,
    "algorithm.entropy": 0.0,
    "update.updates": 16,
    "update.warmup": 20,
    "update.weight_decay": 0.01,
    "update.clip": 1.0,
    "steps": 400,
}


@pytest.mark.parametrize("field", RELEASED)
def test_the_preset_has_the_values_of_the_release(field: str) -> None:
    value: Any = load_config("paper-7b", RlConfig)
    for name in field.split("."):
        value = getattr(value, name)
    assert value == RELEASED[field]


def test_where_the_preset_differs_from_the_release_it_says_so() -> None:
    config = load_config("paper-7b", RlConfig)
    assert config.policy.lora.rank == 32
    assert config.update.rate == 1e-5, "the release's is 1e-6, for all weights"
    text = (PRESETS / "paper-7b.toml").read_text()
    assert "adapters in place of all weights (their rate is higher for it)" in text.replace("\n# ", " ")
