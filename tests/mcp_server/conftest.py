from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import book_text, reader
from tests.cli.conftest import home as home
from tests.faults import FaultServer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder that may be read, with a book."""
    folder = Path(os.path.realpath(tmp_path)) / "root"
    folder.mkdir()
    (folder / "book.txt").write_text(book_text(), encoding="utf-8")
    return folder


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer(reader) as running:
        yield running
