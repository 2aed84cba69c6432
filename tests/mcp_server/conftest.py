from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import FACT, reader
from tests.faults import FaultServer


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal of this test's own."""
    monkeypatch.setenv("MEMAGENT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MEMAGENT_BASE_URL", raising=False)
    return tmp_path / "home"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder that may be read, with a book of some forty chunks; the fact stands at three quarters."""
    folder = Path(os.path.realpath(tmp_path)) / "root"
    folder.mkdir()
    lines = [f"Line {number} tells of the sea and of nothing else in particular." for number in range(200)]
    lines[150] = FACT
    (folder / "book.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer(reader) as running:
        yield running
