"""What needs verl is skipped where it is not installed: it has an environment of its own (`make test-cluster`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

WITH_VERL = find_spec("verl") is not None
collect_ignore_glob = [] if WITH_VERL else ["test_*.py"]

if WITH_VERL:
    from memagent.cluster.environment import prepare

    prepare("cpu")
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "RANK": "0", "WORLD_SIZE": "1", "RAY_USAGE_STATS_ENABLED": "0"})

HELD_OUT = 'validation.task=[{name = "vt", task = "vt", tokens = [200], samples = 1}]'
CONFIG = """
seed = 5
start = "{start}"
steps = 3
threads = 1
books = ["{book}"]

[rollout]
prompts = 4
group = 4
question_tokens = 40
chunk_tokens = 60
memory_tokens = 24
answer_tokens = 24

[algorithm]
kl = 0.01

[update]
updates = 2
rate = 1e-3
batch_tokens = 400

[cluster]
device = "cpu"
rollout = "inprocess"
readers = 1

[[task]]
name = "single"
task = "niah_single_2"
tokens = [150, 300]
"""


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("book") / "book.txt"
    path.write_text("He came home late that evening. She had gone out, and nobody said a word about it.\n\n" * 60)
    return path


@pytest.fixture(scope="session")
def experiment(tmp_path_factory: pytest.TempPathFactory, book: Path) -> Callable[..., Any]:
    """A configuration with some changes, on a tiny model of a kind."""
    from memagent.training.config import load_config
    from memagent.training.rl_config import RlConfig
    from tests.training.tiny import make_folder

    def made(kind: str = "qwen2", *changes: str) -> RlConfig:
        folder = tmp_path_factory.mktemp("experiment")
        start = make_folder(folder / "model", kind)
        (folder / "rl.toml").write_text(CONFIG.format(start=start, book=book))
        return load_config(folder / "rl.toml", RlConfig, changes)

    return made
