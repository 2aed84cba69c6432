"""What pages are made with: templates in which what comes from outside is cleaned and escaped at one place."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup


def environment(folder: Path, clean: Callable[[str], str]) -> Environment:
    """The templates of a folder. What they put out goes through `clean`, unless it is markup, and is then escaped."""

    def finalize(value: Any) -> Any:
        return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def digest(text: str) -> str:
    """The name of a style or script in a policy that allows it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
