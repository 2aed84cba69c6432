"""The shipped folder: complete, small, and able to do what its card says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memagent.models.open import EMBEDDED, OpenModel, open_model
from memagent.settings import make_settings
from memagent.tasks.haystack import Haystack
from memagent.tasks.needle import SPECS, needle
from memagent.training.measure import measure
from memagent.training.tokenizer import SPECIALS, load_tokenizer

BOOK = Path(__file__).parents[2] / "data" / "books" / "moby_dick.txt.gz"


@pytest.fixture(scope="module")
def opened() -> OpenModel:
    return open_model("embedded")


def test_the_folder_is_complete_and_small() -> None:
    names = {path.name for path in EMBEDDED.iterdir()}
    assert names >= {
        "README.md",
        "config.json",
        "generation_config.json",
        "memagent.toml",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(path.stat().st_size for path in EMBEDDED.iterdir()) <= 12 * 2**20
    config = json.loads((EMBEDDED / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["Lfm2ForCausalLM"]
    assert config["max_position_embeddings"] == 1024
    assert config["tie_word_embeddings"] is True


def test_special_tokens_have_the_ids_the_weights_were_trained_with() -> None:
    tokenizer = load_tokenizer(EMBEDDED)
    assert [tokenizer.token_to_id(name) for name in SPECIALS] == [0, 1, 2, 3]
    config = json.loads((EMBEDDED / "config.json").read_text(encoding="utf-8"))
    assert (config["pad_token_id"], config["bos_token_id"], config["eos_token_id"]) == (0, 1, 3)


def test_the_largest_turn_fits_the_window(opened: OpenModel) -> None:
    settings = make_settings(opened, model="embedded")
    assert (settings.window, settings.budgets.chunk, settings.budgets.memory) == (1024, 640, 128)
    assert settings.profile.name == "compact"


def test_it_finds_a_fact_in_a_book_it_has_never_seen(opened: OpenModel) -> None:
    haystack, count = Haystack.load([BOOK]), opened.engine.tokenizer.count
    spec = SPECS["single"]
    samples = [needle(spec, haystack, count, tokens=4096, seed=77, index=index) for index in range(10)]
    results = list(measure(opened, make_settings(opened, model="embedded"), samples))
    assert sum(result.score for result in results) >= 9
    assert all(result.turns >= 7 for result in results)
