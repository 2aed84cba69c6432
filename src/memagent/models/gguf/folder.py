"""The files of a Hugging Face folder that say what is in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memagent.errors import ModelError


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises ModelError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not a readable JSON file: {error}") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path}: expected a JSON object")
    return value
