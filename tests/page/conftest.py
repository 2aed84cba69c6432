from __future__ import annotations

import pytest

from memagent.journal import Journal
from tests.evaluation.conftest import browser

__all__ = ["browser"]


@pytest.fixture
def journal(tmp_path):
    with Journal.open(tmp_path / "journal.sqlite3") as journal:
        yield journal
