"""The main job of the README, as `make ask` runs it: the whole book, the shipped model, no network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.timeout(1800)
def test_one_fact_two_facts_and_none_answer_three_questions_of_the_whole_book(tmp_path):
    environment = {**os.environ, "MEMAGENT_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(ROOT / "examples/ask_a_book.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    planted, _, answers = done.stdout.partition("$ memagent ask")
    for value in ("0171 555 264", "Calderwick"):
        offset = planted.partition(value)[0].rpartition("offset ")[2].partition(" (")[0].replace(",", "")
        quoted = answers.partition(f"\n{value}\n  supported by the document:\n")[2].partition("\n")[0]
        assert f"{value}.”" in quoted
        assert f"offset {offset}, turn" in quoted
    assert "the author of The Winter Orchard: Mara Holt" in answers
    assert "do for a living?\nnot yet\n  not found: the model says that what it read does not hold the answer\n" in answers
    assert answers.count("supported by the document") == 2
