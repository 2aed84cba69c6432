"""The researcher's path by its commands: they fit together, for a model of another family than ours.

The model is random and stays untaught: what training does to weights is tested beside this, and here it is the way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.tiny import make_folder

PLACES = ["Avonmere", "Brackwell", "Corriton", "Dunholt", "Ellerby", "Farrowgate", "Glanmoor", "Hollinford"]
SUPERVISED = """
start = "{folder}/model"
books = ["{folder}/book.txt"]
validation_books = ["{folder}/book.txt"]
profile = "compact"
threads = 1
save_every = 6
validate_every = 6
validation_batches = 1

[log]
tensorboard = false

[budgets]
question = 40
chunk = 100
memory = 60
answer = 60

[schedule]
steps = 6
batch_tokens = 512
warmup = 1

[[mixture]]
name = "dense"
weight = [[0.0, 1.0]]
tokens = [100, 140]
asked = [1, 2]
"""
REWARDED = """
start = "{folder}/sft/last"
steps = 2
save_every = 1
threads = 1

[rollout]
prompts = 2
group = 3
resample = 0
profile = "compact"
question_tokens = 80
chunk_tokens = 120
memory_tokens = 60
answer_tokens = 40

[log]
tensorboard = false

[[task]]
name = "hqa"
file = "{folder}/train.jsonl"
"""


def questions(folder: Path, name: str, places: list[str]) -> None:
    """A file in the form of HotpotQA: each question needs two of its paragraphs."""
    lines = []
    for number, (place, other) in enumerate(zip(places, places[1:] + places[:1], strict=True)):
        gold = [[place, [f"{place} is a village.", f"Its mayor is Ann {other}son."]], [other, [f"{other} has a mill."]]]
        rest = [[one, [f"{one} lies in the hills, {count} miles away."]] for count, one in enumerate(PLACES)]
        lines.append(
            {
                "_id": f"{name}-{number}",
                "question": f"Who is the mayor of {place}?",
                "answer": f"Ann {other}son",
                "context": [*gold, *(one for one in rest if one[0] not in (place, other))],
                "supporting_facts": [[place, 1], [other, 0]],
                "type": "bridge",
                "level": "easy",
            }
        )
    (folder / f"{name}.json").write_text(json.dumps(lines))


def memagent(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MEMAGENT_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "memagent", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=240)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["qwen2"])
def test_from_a_folder_of_weights_and_a_question_file_to_answers(tmp_path: Path, kind: str) -> None:
    def done(*arguments: object) -> subprocess.CompletedProcess[str]:
        run = memagent(tmp_path, *arguments)
        assert run.returncode == 0, run.stderr
        return run

    make_folder(tmp_path / "model", kind)
    (tmp_path / "book.txt").write_text("He came home late that evening. Nobody said a word about it.\n\n" * 60)
    questions(tmp_path, "questions", PLACES[:5])
    questions(tmp_path, "held-out", PLACES[5:])
    for name, file, split in (("train", "questions.json", "train"), ("dev", "held-out.json", "eval")):
        options = ["--set", "articles=4", "--samples", 4 if split == "train" else 2, "--seed", 1]
        done("synth", "hqa", "--questions", file, "--split", split, *options, "-o", f"{name}.jsonl")
    (tmp_path / "sft.toml").write_text(SUPERVISED.format(folder=tmp_path))
    (tmp_path / "rl.toml").write_text(REWARDED.format(folder=tmp_path))
    done("train", "sft", "sft.toml", "-o", "sft", "-q")
    planned = done("train", "rl", "rl.toml", "-o", "rl", "--dry-run")
    assert "2 documents × 3 readings" in planned.stdout
    refused = memagent(tmp_path, "train", "rl", "rl.toml", "-o", "rl", "--set", "task.0.file=dev.jsonl")
    assert refused.returncode != 0
    assert "kept for evaluation" in refused.stderr
    done("train", "rl", "rl.toml", "-o", "rl", "-q")
    metrics = [json.loads(line) for line in (tmp_path / "rl" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics if "reward" in line.get("train", line)] == [1, 2]
    done("train", "export", "rl", "trained", "--checkpoint", "last")
    read = ["--profile", "compact", "--question-tokens", 80, "--chunk-tokens", 120, "--memory-tokens", 60]
    read += ["--answer-tokens", 40]
    done("eval", "dev.jsonl", "-o", "eval", "--model", "trained", *read)
    records = [json.loads(line) for line in next((tmp_path / "eval").rglob("*records*.jsonl")).read_text().splitlines()]
    assert len(records) == 2
    document = tmp_path / "village.txt"
    document.write_text("Avonmere is a village. Its mayor is Ann Brackwellson. " * 8)
    asked = memagent(
        tmp_path, "ask", document, "-q", "Who is the mayor of Avonmere?", "--model", "trained", "--json", *read
    )
    assert asked.returncode in (0, 1), asked.stderr  # an untaught model may find no answer
    assert json.loads(asked.stdout)
