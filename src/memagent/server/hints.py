"""What errors say to do, for clients of the service: they have fields of a request, and no command line."""

from __future__ import annotations

import re

_FOR_CLIENTS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        # An option, with its name in Python, is the field of that name, or one that requests do not have.
        (r"--[a-z-]+ \(`(\w+)` in Python\)", r"`\1`"),
        (r" \(--[a-z-]+[,;] `\w+` (?:in Python|of reader_options)\)", ""),
        (r"\(--[a-z-]+, `\w+` in Python; ", "("),
        # What only whoever runs the service can do.
        (r"\. If it only counts differently, use --ignore-usage .*", ""),
        (r", or, if text was only added at the end, memagent extend \S+", ""),
        (r": memagent (?:resume|extend) \S+", ""),
    )
)


def for_clients(message: str) -> str:
    """The message of an error without its hints for the command line."""
    for pattern, words in _FOR_CLIENTS:
        message = pattern.sub(words, message)
    return message
