"""Characters of a text that is not ours that act where it is shown, instead of standing there."""

from __future__ import annotations

import re

# As parts of a character class: controls (tab and line end apart), marks of direction, separators of lines, and unpaired
# surrogates, which no file can hold.
ACTING = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_ACTING = re.compile(f"[{ACTING}]")


def clean(text: str) -> str:
    """The text for a terminal or a report: each such character becomes U+FFFD."""
    return _ACTING.sub("\ufffd", text.replace("\r\n", "\n"))
