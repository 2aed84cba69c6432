"""Text that is not ours, made fit for the page: escaped, and with every character visible that acts instead of standing."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

# Controls (tab and line end apart), marks that embed or override a direction, separators and tags that nothing shows,
# unpaired surrogates and noncharacters. Other direction marks stay: all text of a reading stands in isolated elements.
_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff\U000e0000-\U000e007f]+"
)
_CODES = 6  # characters of a run that are named one by one


def shown(text: str) -> Markup:
    """The text for an element's content. Characters that would act on the page or are unseen stand there as "U+202E"."""
    return Markup(_ODD.sub(_named, str(escape(_lines(text)))))


def plain(text: str) -> str:
    """The text for attributes and titles, still to be escaped: each such character becomes U+FFFD."""
    return _ODD.sub(lambda found: "\ufffd" * min(len(found[0]), _CODES), _lines(text))


def brief(text: str, size: int) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text[: 4 * size].split())
    return line if len(line) <= size else line[: size - 1].rstrip() + "…"


def _lines(text: str) -> str:
    """A browser takes every kind of line end for this one."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _named(found: re.Match[str]) -> str:
    run = found[0]
    codes = " ".join(f"U+{ord(one):04X}" for one in run[:_CODES])
    more = f" and {len(run) - _CODES:,} more" if len(run) > _CODES else ""
    return f'<i class="odd">{codes}{more}</i>'
