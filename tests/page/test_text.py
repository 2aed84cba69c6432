"""Text that is not ours, as it stands on the page."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest

from memagent.page.text import plain, shown

UNSEEN = [0x200B, 0x200E, 0x200F, 0x61C, 0x2060, 0xAD, 0x180E, 0x3164, 0xFFF9, 0xFFFA, 0xFFFB, 0xFDD0, 0xFDEF, 0xFEFF]
UNSEEN += [0xE0100, 0xE01EF, 0x1D173, 0x1FFFF]
NEEDED = [
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, with a non-joiner within the word
    "\u0915\u094d\u200d\u0937",  # Devanagari, a half form
    "\u0d28\u0d4d\u200d",  # Malayalam, at the end of a word
    "\U0001f469\u200d\U0001f4bb",  # an emoji of two
    "\u2764\ufe0f\u200d\U0001f525",
    "\U0001f44d\U0001f3fd",
]


def named(text):
    return re.sub("</?i[^>]*>", "", shown(text))


@pytest.mark.parametrize("code", UNSEEN)
def test_what_is_not_seen_is_named(code):
    assert named(f"a{chr(code)}b") == f"aU+{code:04X}b"
    assert plain(f"a{chr(code)}b") == "a\ufffdb"


@pytest.mark.parametrize("text", NEEDED)
def test_joiners_stay_where_they_are_needed(text):
    assert shown(text) == plain(text) == text


@pytest.mark.parametrize("text", ["pass\u200dword", "pass\u200cword", "\u200d", "\u0645\u200b\u200d", "\u0645\u200c\u200c"])
def test_other_joiners_are_named(text):
    assert "U+200" in shown(text)
    assert "\ufffd" in plain(text)


def test_no_control_mark_of_direction_or_noncharacter_passes():
    """All but signs of Arabic, Syriac and Kaithi that stand before numbers, and of Egyptian, which are seen."""
    seen = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440)}
    for code in set(range(sys.maxunicode + 1)) - {9, 10, 13} - seen:
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp") or code & 0xFFFE == 0xFFFE:
            assert "U+" in shown(chr(code)), hex(code)
