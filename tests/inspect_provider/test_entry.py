"""What inspect_ai finds of memagent."""

from __future__ import annotations

import importlib
import sys

import pytest

from memagent.errors import MissingExtraError


def test_without_inspect_ai_the_entry_point_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.model", None)
    monkeypatch.delitem(sys.modules, "memagent.inspect_provider.entry", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'memagent\[inspect\]'"):
        importlib.import_module("memagent.inspect_provider.entry")
