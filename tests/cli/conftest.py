from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memagent.cli import app
from memagent.models.open import EMBEDDED
from memagent.models.tokenizers import FileTokenizer
from tests.faults import Fault, FaultServer

FACT = "The code for amber-falcon is 4821973."


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal of this test's own."""
    monkeypatch.setenv("MEMAGENT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MEMAGENT_BASE_URL", raising=False)
    return tmp_path / "home"


def reader(messages: list[dict[str, str]]) -> str:
    """A model that keeps the sentence about amber-falcon once it has seen it, and counts the sections."""
    prompt = messages[-1]["content"]
    memory = prompt.partition("<memory>")[2].partition("</memory>")[0].strip()
    section = prompt.partition("<section>")[2].partition("</section>")[0]
    found = FACT in section or FACT in memory
    if "<section>" not in prompt:
        return "4821973" if found else "not found"
    count = int(memory.split()[-1]) + 1 if memory.startswith(("read", FACT)) else 1
    return f"{FACT if found else ''}\nread {count}".strip()


class CountingServer(FaultServer):
    """Counts prompts with the tokenizer of the embedded model, for clients that count with it too."""

    def __init__(self, model: Callable[[list[dict[str, str]]], str], **options: Any) -> None:
        super().__init__(model, **options)
        self.tokenizer = FileTokenizer.load(EMBEDDED)

    def count(self, body: dict[str, Any]) -> int:
        return sum(self.tokenizer.count(message["content"]) for message in body["messages"])

    def complete(self, body: dict[str, Any], *, fault: Fault | None) -> dict[str, Any]:
        reply = super().complete(body, fault=fault)
        reply["usage"]["prompt_tokens"] = self.count(body)
        return reply


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def memagent() -> Callable[..., Result]:
    """Runs the command in this process: memagent("ask", path, "-q", "…")."""

    def run(*arguments: object, **options: Any) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], **options)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Result(result.exit_code, result.stdout, result.stderr)

    return run


def book_text() -> str:
    """A text of some forty chunks of 100 estimated tokens, with the fact at three quarters."""
    lines = [f"Line {number} tells of the sea and of nothing else in particular." for number in range(200)]
    lines[150] = FACT
    return "\n".join(lines)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A file with that text."""
    path = tmp_path / "book.txt"
    path.write_text(book_text(), encoding="utf-8")
    return path


@pytest.fixture
def server():
    with FaultServer(reader) as running:
        yield running


@pytest.fixture
def served(server: FaultServer) -> list[str]:
    """Options that point the command at the scripted server."""
    return ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100", "--memory-tokens", "50"]
