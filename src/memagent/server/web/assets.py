"""The files that the page is made with. Their addresses change with their content, so that browsers may keep them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from memagent import page

_HERE = Path(__file__).parent
_FILES = {
    "page.css": (Path(page.__file__).parent / "style.css", "text/css; charset=utf-8"),  # the look of the page of a reading
    "service.css": (_HERE / "service.css", "text/css; charset=utf-8"),
    "service.js": (_HERE / "service.js", "text/javascript; charset=utf-8"),
    "icon.svg": (_HERE / "icon.svg", "image/svg+xml"),
}


@cache
def asset(name: str) -> tuple[bytes, str] | None:
    """The content of a file and its type; None: there is none of that name."""
    found = _FILES.get(name)
    return (found[0].read_bytes(), found[1]) if found else None


@cache
def address(name: str) -> str:
    """Where a browser gets a file."""
    found = asset(name)
    assert found is not None
    return f"/static/{name}?v={hashlib.sha256(found[0]).hexdigest()[:12]}"
