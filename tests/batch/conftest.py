"""Jobs over small files, and a model that finds the code of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import home as home
from tests.cli.conftest import memagent as memagent
from tests.faults import FaultServer

LINE = "Line {} tells of the sea and of nothing else in particular."
SERVED = ["--model", "scripted", "--chunk-tokens", "100", "--memory-tokens", "50", "--no-verify"]


def code(number: int) -> str:
    return str(70000 + 37 * number)


def reply(messages: list[dict[str, str]]) -> str:
    """Keeps the sentence with the code once it has seen it, and answers with the code."""
    prompt = messages[-1]["content"]
    found = next((line for line in prompt.splitlines() if line.startswith("The code is")), "")
    if "<section>" not in prompt:
        return found.rstrip(".").split()[-1] if found else "not found"
    return found or "nothing yet"


def write_jobs(folder: Path, count: int, lines: int = 12, **more: Any) -> Path:
    """A file of jobs, each over a file of its own with its code in the middle."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(count):
        text = [LINE.format(n) for n in range(lines)]
        text[lines // 2] = f"The code is {code(number)}."
        (folder / f"d{number}.txt").write_text("\n".join(text))
        rows.append({"id": f"j{number}", "document": f"d{number}.txt", "question": "What is the code?", **more})
    path = folder / "jobs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def timeless(out: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The records without what differs from run to run, each of them once."""
    found = {}
    for record in records(out):
        for cost in (record["usage"], record["verification"]):
            del cost["seconds"]
        del record["seconds"], record["turns_resumed"]
        key = record["id"], record["question"]
        assert key not in found, f"two records of {key}"
        found[key] = record
    return found


@pytest.fixture
def server():
    with FaultServer(reply) as running:
        yield running
