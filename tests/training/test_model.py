"""The fast forward equals the stock one; an exported folder opens with transformers and gives the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from memagent.errors import ConfigError, TrainingError
from memagent.training.checkpoint import load_checkpoint, save_checkpoint
from memagent.training.config import ModelShape, TrainConfig, load_config
from memagent.training.export import export_run
from memagent.training.model import build_model, reply_hidden
from memagent.training.sft import run

LAYERS = ("conv", "full_attention", "conv", "full_attention", "conv")


@pytest.mark.parametrize("layers", [LAYERS, ("full_attention",), ("conv", "full_attention", "conv", "conv")])
def test_the_reply_is_computed_as_the_stock_model_does(layers: tuple[str, ...]) -> None:
    shape = ModelShape(hidden=32, feed_forward=48, heads=2, layers=layers, conv=4, window=64)  # type: ignore[arg-type]
    model = build_model(shape, 50, seed=1)
    ids_NT = torch.randint(4, 50, (3, 40), generator=torch.Generator().manual_seed(0))
    at_NR = torch.tensor([[12, 13, 14], [20, 21, 22], [37, 38, 39]])
    stock = model.model(ids_NT).last_hidden_state.gather(1, at_NR[..., None].expand(-1, -1, 32))
    torch.testing.assert_close(reply_hidden(model, ids_NT, at_NR), stock, rtol=1e-4, atol=1e-4)


def test_padding_on_the_right_changes_nothing() -> None:
    shape = ModelShape(hidden=32, feed_forward=48, heads=2, layers=LAYERS, conv=4, window=64)
    model = build_model(shape, 50, seed=1)
    ids_NT = torch.randint(4, 50, (1, 20), generator=torch.Generator().manual_seed(0))
    padded = torch.cat([ids_NT, torch.zeros(1, 9, dtype=torch.long)], dim=1)
    at_NR = torch.tensor([[15, 16, 17]])
    torch.testing.assert_close(reply_hidden(model, padded, at_NR), reply_hidden(model, ids_NT, at_NR))


def test_weights_depend_on_the_seed() -> None:
    shape = ModelShape(hidden=32, feed_forward=48, heads=2, layers=LAYERS)
    one, same, other = (build_model(shape, 50, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_an_exported_folder_opens_and_gives_the_same_logits(config: TrainConfig, config_file: Path, tmp_path: Path) -> None:
    trainer = run(config, tmp_path, resume=False, stop_after=2)
    (tmp_path / "config.toml").write_bytes(config_file.read_bytes())
    export_run(tmp_path, tmp_path / "model", averaged=False, dtype=torch.float32)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert model.config.architectures == ["Lfm2ForCausalLM"]
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == 3
    ids = torch.tensor([[1, 50, 60, 70, 2, 80]])
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, trainer.model(ids).logits)


def test_checkpoints_are_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint({"step": 1}, path)
    save_checkpoint({"step": 2}, path)
    assert load_checkpoint(path) == {"step": 2}
    assert list(tmp_path.iterdir()) == [path]
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(TrainingError, match=r"checkpoint\.pt"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("hidden = 16", "hidden = 17", "model"),
        ("steps = 40", "steps = 0", r"schedule\.steps"),
        ("steps = 40", "stepz = 40", r"schedule\.steps"),
        ("asked = [1, 2]", "asked = [-1, 2]", r"mixture\.0\.asked"),
        ("seed = 3", "seed = 'three'", "seed"),
        ("[model]", "[model", "cannot be read"),
    ],
)
def test_a_bad_configuration_names_the_field(config_file: Path, tmp_path: Path, old: str, new: str, field: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(config_file.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"bad\.toml: {field}"):
        load_config(path)
