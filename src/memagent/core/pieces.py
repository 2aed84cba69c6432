"""Cuts a long text into pieces that can be tokenized one by one, or at the same time."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Places where no usual splitting rule joins what is before with what is after: before a line's text, before a word.
_SEAM = re.compile(r"(?<=\n)(?=\S)|(?<=[A-Za-z])(?= [A-Za-z])")
# The place before a space between two words. Where a tokenizer keeps words apart, no token reaches over it, and what is on
# one side does not change the tokens of the other.
WORD_SEAM = re.compile(r"(?<=[^\W\d_])(?= [^\W\d_])")
# The last seam is looked for in this share of a piece.
_TAIL_SHARE = 16


def pieces(text: str, size: int) -> Iterator[tuple[int, str]]:
    """Yields (offset, piece) for pieces of at most `size` characters, cut where tokens do not join, as far as there are
    such places. They join to the text; an empty text has none."""
    start = 0
    while start < len(text):
        end = min(start + size, len(text))
        if end < len(text):
            seams = [match.start() for match in _SEAM.finditer(text, max(start + 1, end - size // _TAIL_SHARE), end)]
            end = seams[-1] if seams else end
        yield start, text[start:end]
        start = end
