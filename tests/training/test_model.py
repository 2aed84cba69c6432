"""The fast forward equals the stock one; an exported folder opens with transformers and gives the same numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from memagent.driver import read
from memagent.errors import ConfigError, TrainingError
from memagent.models.open import open_model
from memagent.settings import make_plan, make_settings
from memagent.tasks.rope import Rope
from memagent.training.config import ModelShape, SftConfig
from memagent.training.export import export_checkpoint
from memagent.training.model import build_model, deepened, load_model, new_model, reply_hidden
from memagent.training.sft import Trainer, run

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


def test_what_other_engines_ask_of_the_configuration_is_there() -> None:
    shape = ModelShape(hidden=32, feed_forward=48, heads=2, layers=LAYERS)
    config = build_model(shape, 50, seed=1).config.to_dict()
    assert (config["conv_dim"], config["block_dim"]) == (32, 32)


@pytest.mark.parametrize(
    ("before", "kinds"),
    [([1, 1], "cccfcfc"), ([0, 3, 4], "ccfccfcc")],
)
def test_a_deepened_model_is_the_same_function_until_it_is_trained(
    config: SftConfig, tmp_path: Path, before: list[int], kinds: str
) -> None:
    source = new_model(config, tmp_path / "source")
    (source / "trainer.pt").write_bytes(b"of another run")
    folder = deepened(source, before, tmp_path / "deep", 7)
    old, new = load_model(source), load_model(folder)
    assert "".join(kind[0] for kind in new.config.layer_types) == kinds
    ids = torch.tensor([[1, 50, 60, 70, 2, 80]])
    torch.testing.assert_close(new(ids).logits, old(ids).logits, rtol=0, atol=0)
    assert {path.name for path in folder.iterdir()} == {path.name for path in source.iterdir()} - {"trainer.pt"}
    new(ids).logits.sum().backward()
    idle = [name for name, value in new.named_parameters() if not value.grad.norm()]
    assert not any("out_proj" in name or "w2" in name for name in idle)  # what makes them nothing can be learnt


def test_a_run_deepens_its_start_once(config: SftConfig, tmp_path: Path) -> None:
    start = new_model(config, tmp_path / "source")
    changes = {"model": None, "tokenizer": None, "start": str(start), "deepen": (1,)}
    deep = config.model_copy(update=changes)
    run(deep, tmp_path / "run", resume=False, stop_after=4)
    trainer = run(deep, tmp_path / "run", resume=True, stop_after=5)
    assert trainer.policy.causal.config.num_hidden_layers == 6
    assert trainer.step == 5


def test_what_cannot_be_deepened_is_refused(config: SftConfig, tmp_path: Path) -> None:
    start = new_model(config, tmp_path / "source")
    with pytest.raises(TrainingError, match="has the layers 0 to 4"):
        deepened(start, [5], tmp_path / "deep", 7)
    GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=50)).save_pretrained(tmp_path / "other")
    with pytest.raises(TrainingError, match="only an Lfm2 model"):
        deepened(tmp_path / "other", [0], tmp_path / "deep", 7)
    assert not (tmp_path / "deep").exists()


@pytest.fixture(scope="module")
def trained(config: SftConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, Path]:
    folder = tmp_path_factory.mktemp("trained")
    return run(config, folder, resume=False, stop_after=2), folder


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
    assert (settings.profile.name, settings.budgets.chunk, settings.direct) == ("compact", 60, False)
    plan = make_plan(Rope(["He came home late that evening. " * 40]), "What is the code?", settings, opened)
    assert len(read(plan, opened.engine).records) >= 3


def test_export_says_what_is_wrong(trained: tuple[Trainer, Path], tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ConfigError, match="is not empty"):
        export_checkpoint(trained[1], tmp_path / "full")
    with pytest.raises(ConfigError, match="float8"):
        export_checkpoint(trained[1], tmp_path / "model", dtype="float8")
    with pytest.raises(TrainingError, match="holds no checkpoint 'best'"):
        export_checkpoint(tmp_path, tmp_path / "model")
    assert not (tmp_path / "model").exists()
