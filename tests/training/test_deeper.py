"""A deeper model computes what the model did, and its new layers learn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from memagent.errors import ConfigError, TrainingError
from memagent.training.config import SftConfig
from memagent.training.export import export_checkpoint
from memagent.training.forecast import forecast_sft
from memagent.training.growth import grow, grown, write_deeper
from memagent.training.model import load_model
from memagent.training.run import Launch
from memagent.training.sft import run
from tests.training.tiny import make_folder

STACKS = {"lfm2": (0, 1, 2, 1, 2), "llama": (0, 0, 1, 1), "qwen2": (0, 1, 0, 1)}


def logits(folder: Path) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = load_model(folder)(input_ids=torch.arange(4, 60)[None]).logits
    return found


@pytest.mark.parametrize("kind", STACKS)
def test_a_deeper_model_computes_the_same_and_its_copies_get_gradients(kind: str, tmp_path: Path) -> None:
    start, stack = make_folder(tmp_path / "start", kind), STACKS[kind]
    folder = tmp_path / "deeper"
    write_deeper(start, stack, folder)
    torch.testing.assert_close(logits(folder), logits(start))
    model = load_model(folder)
    assert model.config.num_hidden_layers == len(stack)
    assert transformers.AutoTokenizer.from_pretrained(folder).get_vocab()
    assert (folder / "memagent.toml").read_text() == (start / "memagent.toml").read_text()
    if kind == "lfm2":
        kinds = ["conv", "full_attention", "conv"]
        assert model.config.layer_types == [kinds[layer] for layer in stack]
    model(input_ids=torch.arange(4, 60)[None]).logits.logsumexp(-1).sum().backward()
    for place in range(len(stack)):
        written = [
            value.grad.abs().sum() > 0
            for name, value in model.named_parameters()
            if f"layers.{place}." in name
            and name.endswith(("o_proj.weight", "out_proj.weight", "w2.weight", "down_proj.weight"))
        ]
        assert len(written) == 2
        assert all(written)


@pytest.mark.parametrize("stack", [(0, 1), (1, 0, 2), (0, 1, 2, 3), (0, 2, 1)])
def test_a_stack_must_have_every_layer_in_order(stack: tuple[int, ...], tmp_path: Path) -> None:
    start = make_folder(tmp_path / "start", "lfm2")
    with pytest.raises(
        ConfigError, match=r"stack = .* must name each of the 3 layers, from 0, for the first time in order"
    ):
        write_deeper(start, stack, tmp_path / "deeper")
    assert not (tmp_path / "deeper").exists()


def test_a_family_with_other_names_of_layers_is_refused() -> None:
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=80))
    with pytest.raises(TrainingError, match="a GPT2LMHeadModel cannot be made deeper"):
        grow(model, (0, 1, 1))


def test_lists_that_happen_to_be_as_long_as_the_layers_are_many_stay_as_they_are() -> None:
    config = transformers.LlamaConfig(num_hidden_layers=2, eos_token_id=[2, 3])
    deeper = grown(config, (0, 0, 1))
    assert (deeper.num_hidden_layers, deeper.eos_token_id) == (3, [2, 3])


def test_a_deeper_model_that_was_not_written_whole_is_written_again(config: SftConfig, tmp_path: Path) -> None:
    run(config, Launch(tmp_path / "first", stop_after=1))
    own = config.model_dump(exclude={"model", "tokenizer"}) | {"start": str(tmp_path / "first" / "start")}
    deeper = SftConfig.model_validate(own | {"stack": (0, 1, 2, 3, 4, 4)})
    half = tmp_path / "second" / "deeper"
    half.mkdir(parents=True)
    (half / "config.json").write_text("{}")
    trainer = run(deeper, Launch(tmp_path / "second", resume=True, stop_after=1))
    assert trainer.policy.causal.config.num_hidden_layers == 6


def test_a_supervised_run_makes_its_model_deeper_once(config: SftConfig, tmp_path: Path) -> None:
    assert config.schedule.steps > 2
    first = run(config, Launch(tmp_path / "first", stop_after=1))
    start = tmp_path / "first" / "start"
    layers = first.policy.causal.config.num_hidden_layers
    stack = (*range(layers), layers - 1)
    own = config.model_dump(exclude={"model", "tokenizer"}) | {"start": str(start), "stack": stack}
    deeper = SftConfig.model_validate(own)
    assert forecast_sft(deeper).parameters > forecast_sft(config).parameters
    begun = run(deeper, Launch(tmp_path / "second", stop_after=1))
    assert begun.policy.causal.config.num_hidden_layers == layers + 1
    torch.testing.assert_close(logits(tmp_path / "second" / "deeper"), logits(start))
    went_on = run(deeper, Launch(tmp_path / "second", resume=True, stop_after=2))
    assert went_on.step == 2
    export_checkpoint(tmp_path / "second", tmp_path / "model", "last", "float32")
    assert load_model(tmp_path / "model").config.num_hidden_layers == layers + 1


def test_a_new_model_has_no_stack(config: SftConfig) -> None:
    with pytest.raises(ValueError, match="`stack` makes the model of `start` deeper"):
        SftConfig.model_validate(config.model_dump() | {"stack": (0, 0)})
