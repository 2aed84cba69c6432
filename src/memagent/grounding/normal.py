"""Text in the form in which quotes are compared with their source, and where each character of it came from.

Levelled out is what typesetting, extraction and models change without changing a word: Unicode forms (NFKC), case, white
space, line breaks, hyphenation, the shapes of quotation marks and dashes, invisible characters, Markdown emphasis, and the
colours of terminals.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

_QUOTES = "'\"`´‘’‚‛“”„‟′″‹›«»「」『』"
_DASHES = "‒–—―⸺⸻"
_DASH, _MINUS = "–", "−"
# Characters that compose with the one before them although they are no combining marks: Korean vowels and finals.
_MARKS = r"[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0903\u093a-\u094f\u0951-\u0957" + (
    r"\u0981-\u0983\u09bc-\u09cd\u0a3c-\u0a51\u0abc-\u0acd\u0b3c-\u0b57\u0bbe-\u0bd7\u0c3e-\u0c56\u0cbc-\u0cd6\u0d3e-\u0d57"
    r"\u0dca-\u0ddf\u0e31-\u0e3a\u0e47-\u0e4e\u102b-\u103e\u1161-\u1175\u11a8-\u11c2\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0"
    r"\u3099\u309a\ufe00-\ufe0f\ufe20-\ufe2f]"
)
_INVISIBLE = r"\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
_COLOUR = r"\x1b\[[0-9;]*[A-Za-z]"  # of a terminal, in a log
_TOKEN = re.compile(
    rf"""(?P<hyphen>(?<=[^\W\d_])[-\u2010\u2011\u00ad][{_INVISIBLE}]*(?:[^\S\n]*\r?\n\s*)?(?=[^\W\d_]))
    |(?P<invisible>(?:{_COLOUR}|[{_INVISIBLE}*])+)
    |(?P<dash>\s*(?:[{_DASHES}]+|-{{2,}})\s*|\s+-\s+)
    |(?P<quote>[{_QUOTES}]+)
    |(?P<space>\s+)
    |(?P<letter>.{_MARKS}*)""",
    re.VERBOSE | re.DOTALL,
)

WORD = re.compile(r"[^\W_]+")
# A letter or digit of a script with spaces between words; see `wide`.
_NARROW = (
    r"[^\W\u1100-\u115f\u2e80-\ua4cf\ua960-\ua97c\uac00-\ud7a3\uf900-\ufaff\uff01-\uff60"
    r"\U00016fe0-\U00018d08\U0001b000-\U0003fffd]"
)
NUMBER = re.compile(r"\d(?:[\d.,:/-]*\d)?")
BULLET = re.compile(r"^\s*(?:[-*•–>]|\(?\d{1,3}[.)])\s+")


@dataclass(frozen=True, slots=True)
class Normal:
    """A levelled text. Its character i came from characters [starts[i], ends[i]) of the source."""

    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def source(self, start: int, end: int) -> tuple[int, int]:
        """The characters of the source that the levelled characters [start, end) came from; `end` > `start`."""
        return self.starts[start], self.ends[end - 1]


def normal(text: str) -> Normal:
    """The levelled form of a text."""
    chars: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind in ("hyphen", "invisible"):
            continue
        if kind == "space":
            written = "" if _no_space(chars, text, token.end()) else " "
        elif kind == "dash":
            written = _DASH
        elif kind == "quote":
            written = "'"
        else:
            written = unicodedata.normalize("NFKC", token.group()).casefold().replace(_MINUS, "-")
        if written in (" ", "'", _DASH) and chars and chars[-1] == written:
            ends[-1] = token.end()
            continue
        for char in written:
            chars.append(char)
            starts.append(token.start())
            ends.append(token.end())
    while chars and chars[-1] == " ":
        for values in (chars, starts, ends):
            values.pop()
    return Normal("".join(chars), tuple(starts), tuple(ends))


def _no_space(chars: list[str], text: str, after: int) -> bool:
    """Whether white space says nothing: at the beginning, and between two characters of a script without spaces."""
    return not chars or (after < len(text) and wide(chars[-1]) and wide(text[after]))


def whole(words: str, *, loose: bool = False) -> re.Pattern[str]:
    """These words, not as parts of longer words or numbers: "500" is no part of "12,500.00". `loose`: in any case, and with
    any white space between them. Scripts that are written without spaces have no borders to look for."""
    body = r"\s+".join(map(re.escape, words.split())) if loose else re.escape(words)
    before = rf"(?<!{_NARROW})(?<!\d[.,])" if _has_borders(words[0]) else ""
    after = rf"(?!{_NARROW})(?![.,]\d)" if _has_borders(words[-1]) else ""
    return re.compile(before + body + after, re.IGNORECASE if loose else 0)


def _has_borders(char: str) -> bool:
    return char.isalnum() and not wide(char)


def wide(char: str) -> bool:
    """Whether a character belongs to a script that is written without spaces between words."""
    return unicodedata.east_asian_width(char) in "WF"
