"""A training run small enough for a test: 400 tokens, two pages of text, a few thousand weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from memagent.training.config import SftConfig, load_config
from memagent.training.tokenizer import save_tokenizer, train_tokenizer

TEXT = "He came home late that evening. She had gone out, and nobody said a word about it.\n\n" * 60
CONFIG = """
seed = 3
threads = 1
tokenizer = "{folder}"
books = ["{folder}/book.txt"]
validation_books = ["{folder}/book.txt"]
profile = "compact"
log_every = 1
validate_every = 20
validation_batches = 1
save_every = 4

[log]
tensorboard = false

[budgets]
question = 16
chunk = 60
memory = 32
answer = 48

[model]
window = 320
hidden = 16
feed_forward = 32
heads = 2
layers = ["conv", "full_attention", "conv", "full_attention", "conv"]

[schedule]
steps = 40
batches = 2
batch_tokens = 512
rate = 1e-2
muon = 1.0
warmup = 4

[[mixture]]
name = "dense"
weight = [[0.0, 1.0], [1.0, 0.5]]
tokens = [120, 160]
asked = [1, 2]

[[mixture]]
name = "answer"
weight = [[0.0, 0.2]]
tokens = [60, 60]
asked = [1, 2]
answer = 1.0

[[mixture]]
name = "echo"
weight = [[0.0, 0.2]]
tokens = [30, 40]
echo = 1.0

[[reading]]
name = "vt"
task = "vt"
weight = [[0.0, 0.5]]
tokens = [150, 200]
chunk = [60, 80]
options = {{hops = [0, 1]}}
"""


@pytest.fixture(scope="session")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    save_tokenizer(train_tokenizer(iter(TEXT.splitlines(keepends=True)), 400), folder, window=256)
    (folder / "book.txt").write_text(TEXT, encoding="utf-8")
    path = folder / "config.toml"
    path.write_text(CONFIG.format(folder=folder), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def config(config_file: Path) -> SftConfig:
    return load_config(config_file, SftConfig)
