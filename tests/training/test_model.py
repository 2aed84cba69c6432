"""Weights depend on the seed; an exported folder opens with transformers and gives the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from memagent.driver import read
from memagent.errors import ConfigError, OutputError, TrainingError
from memagent.models.open import open_model
from memagent.settings import make_plan, make_settings
from memagent.tasks.lazy_text import LazyText
from memagent.training.config import ModelShape, SftConfig
from memagent.training.export import export_checkpoint, export_model
from memagent.training.model import build_model, load_model
from memagent.training.run import Launch
from memagent.training.sft import Trainer, run

LAYERS = ("conv", "full_attention", "conv", "full_attention", "conv")


def test_weights_depend_on_the_seed() -> None:
    shape = ModelShape(hidden=32, feed_forward=48, heads=2, layers=LAYERS)
    one, same, other = (build_model(shape, 50, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_what_other_engines_ask_of_the_configuration_is_there() -> None:
    shape = ModelShape(hidden=32, feed_forward=48, heads=2, layers=LAYERS)
    config = build_model(shape, 50, seed=1).config.to_dict()
    assert (config["conv_dim"], config["block_dim"]) == (32, 32)


@pytest.fixture(scope="module")
def trained(config: SftConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, Path]:
    folder = tmp_path_factory.mktemp("trained")
    return run(config, Launch(folder, stop_after=2)), folder


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_exported_folder_opens_and_gives_the_same_logits(
    trained: tuple[Trainer, Path], tmp_path: Path, dtype: str
) -> None:
    trainer, folder = trained
    export_checkpoint(folder, tmp_path / "model", "last", dtype)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    written = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    assert (written["architectures"], written["dtype"]) == (["Lfm2ForCausalLM"], dtype)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == 3
    ids = torch.tensor([[1, 50, 60, 70, 2, 80]])
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == "float32" else {"rtol": 0.1, "atol": 0.1}
    with torch.no_grad(), trainer.average.in_place():
        torch.testing.assert_close(model(ids).logits, trainer.policy.causal(ids).logits, **close)


def test_an_exported_folder_answers_questions(trained: tuple[Trainer, Path], tmp_path: Path) -> None:
    export_checkpoint(trained[1], tmp_path / "model", "last")
    opened = open_model(str(tmp_path / "model"))
    assert opened.defaults.window == 320
    settings = make_settings(opened, model="x")
    assert (settings.profile.name, settings.budgets.chunk, settings.reader) == ("compact", 60, "memory")
    plan = make_plan(LazyText(["He came home late that evening. " * 40]), "What is the code?", settings, opened)
    assert len(read(plan, opened.engine).records) >= 3


def test_weights_of_the_start_do_not_come_along(trained: tuple[Trainer, Path], tmp_path: Path) -> None:
    """A folder from a hub holds its weights in parts, with an index that names them: beside new ones they would be read."""
    start, folder = tmp_path / "start", tmp_path / "model"
    export_checkpoint(trained[1], start)
    model = load_model(start)
    for name in ("model.safetensors.index.json", "model-00001-of-00002.safetensors", "pytorch_model.bin", "README.md"):
        (start / name).write_text("of the start")
    export_model(model, start, folder, "float32")
    assert not [path for path in folder.iterdir() if path.read_bytes() == b"of the start"]
    assert {"tokenizer.json", "memagent.toml", "chat_template.jinja"} <= {path.name for path in folder.iterdir()}


def test_a_full_disk_at_export_leaves_no_folder(
    trained: tuple[Trainer, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        (tmp_path / "model" / "half").touch()
        raise SafetensorError("Error while serializing: No space left on device (os error 28)")

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", full)
    with pytest.raises(OutputError, match=r"model: cannot be written: .*No space left"):
        export_checkpoint(trained[1], tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_export_says_what_is_wrong(trained: tuple[Trainer, Path], tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ConfigError, match="is not empty"):
        export_checkpoint(trained[1], tmp_path / "full")
    with pytest.raises(ConfigError, match="float8"):
        export_checkpoint(trained[1], tmp_path / "model", dtype="float8")
    with pytest.raises(TrainingError, match="holds no checkpoint 'best'"):
        export_checkpoint(tmp_path, tmp_path / "model")
    with pytest.raises(OutputError, match="within: cannot be written"):
        export_checkpoint(trained[1], tmp_path / "full" / "file" / "within")
    assert not (tmp_path / "model").exists()
