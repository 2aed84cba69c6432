"""What scorers read from the meta of a sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def needed(meta: Mapping[str, Any], name: str, kind: type) -> Any:
    """A field of the meta that a scorer cannot do without. Raises ValueError."""
    value = meta.get(name)
    if not isinstance(value, kind):
        raise ValueError(f"its scorer needs meta.{name}, of the type {kind.__name__}, not {value!r}")
    return value
