"""Text that is not ours, made fit for the page: escaped, and with every character visible that acts instead of standing."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from memagent.harmful import ACTING

# Also what has no width or is not seen, of notations, tags, selectors of variants of ideographs, and noncharacters.
_UNSEEN = (
    f"{ACTING}\xad\u180e\u200b\u2060-\u206f\u3164\ufdd0-\ufdef\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e01ef"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0x110000, 0x10000))
)
# Joiners stay after what they change: letters of Arabic, Syriac, N'Ko, Mandaic, the scripts of South and South-East Asia,
# Mongolian, and emoji (with their selector).
_JOINED = (
    "\u0620-\u077f\u07c0-\u07ff\u0840-\u08ff\u0900-\u109f\u1780-\u180d\u180f-\u18af\u1a00-\u1cff\u2190-\u2bff\ua800-\uabff"
    "\ufb50-\ufdcf\ufdf0-\ufe0f\ufe70-\ufefc\U00010a00-\U00011fff\U0001e900-\U0001e95f\U0001f000-\U0001faff"
)
_ODD = re.compile(f"(?:[{_UNSEEN}]|(?<![{_JOINED}])[\u200c\u200d])+")
_CODES = 6  # characters of a run that are named one by one


def shown(text: str) -> Markup:
    """The text for an element's content. Characters that would act on the page, or are not seen, stand there as
    "U+202E"."""
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
