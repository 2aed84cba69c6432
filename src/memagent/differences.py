"""Settings that were one thing and are another, named for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def flat(name: str, value: Any) -> dict[str, Any]:
    """Nested objects as dotted names, which begin with `name`, so that a difference can be named exactly."""
    if not isinstance(value, Mapping) or not value:
        return {name: value}
    lead = f"{name}." if name else ""
    return {inner: leaf for key, item in value.items() for inner, leaf in flat(f"{lead}{key}", item).items()}


def change(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """How a value of JSON with a dotted name changed: `reader: "memory" → "gated"`."""
    return f"{name}: {_brief(old, name)} → {_brief(new, name)}"


def _brief(values: Mapping[str, Any], name: str) -> str:
    if name not in values:
        return "(not set)"
    text = json.dumps(values[name], ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"
