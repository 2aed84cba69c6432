"""The shipped folder: complete, small, and able to do what its card says."""

from __future__ import annotations

import json

import pytest

from memagent.driver import Transcript, read_batch
from memagent.models.open import EMBEDDED, OpenModel, open_model
from memagent.scoring import strict
from memagent.settings import make_plan, make_settings
from memagent.tasks.catalog import find
from memagent.tasks.haystack import Haystack
from memagent.tasks.samples import Sample
from memagent.tasks.task import Materials, Request
from memagent.tasks.words import shipped_words
from memagent.training.tokenizer import SPECIALS
from tests.helpers import raw_tokenizer


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
    tokenizer = raw_tokenizer(EMBEDDED)
    assert [tokenizer.token_to_id(name) for name in SPECIALS] == [0, 1, 2, 3]
    config = json.loads((EMBEDDED / "config.json").read_text(encoding="utf-8"))
    assert (config["pad_token_id"], config["bos_token_id"], config["eos_token_id"]) == (0, 1, 3)


def test_the_largest_turn_fits_the_window(opened: OpenModel) -> None:
    settings = make_settings(opened, model="embedded")
    assert (settings.window, settings.budgets.chunk, settings.budgets.memory) == (1024, 640, 128)
    assert settings.profile.name == "compact"


# The least sum of ten scores; the card has what was measured over many more.
LEAST = {"niah_single_2": 9, "niah_single_3": 9, "niah_multikey_3": 8, "niah_multivalue": 8, "vt": 8, "updates": 7}


@pytest.mark.parametrize("name", LEAST)
def test_it_does_what_its_card_says_in_a_book_it_has_never_seen(opened: OpenModel, name: str) -> None:
    materials = Materials(tokenizer=opened.engine.tokenizer, haystack=Haystack.shipped(), words=shipped_words("eval"))
    samples = [draw(name, materials, index) for index in range(10)]
    settings = make_settings(opened, model="embedded")
    plans = [make_plan(sample.document, sample.question, settings, opened) for sample in samples]
    outcomes = read_batch(plans, opened.engine)
    done = [outcome for outcome in outcomes if isinstance(outcome, Transcript)]
    assert len(done) == len(samples)
    assert all(len(outcome.records) >= 7 for outcome in done)
    right = [strict(outcome.answer, sample.answers, sample.mode) for outcome, sample in zip(done, samples, strict=True)]
    assert sum(right) >= LEAST[name]


def draw(name: str, materials: Materials, index: int) -> Sample:
    task = find(name)
    return task.sample(materials, Request(tokens=4096, seed=77, index=index), task.options({}))
