"""What acts on a terminal or a report is seen there, and the page names at least as much."""

from __future__ import annotations

import re
import sys
import unicodedata

from memagent.harmful import clean
from memagent.page.text import shown


def test_harmful_characters_become_visible():
    assert clean("a\x00b\u202ec\r\nd\te\ud800\rf") == "a\ufffdb\ufffdc\nd\te\ufffd\ufffdf"


def test_no_control_mark_of_direction_or_separator_passes():
    """By what Unicode says of them: directions are those that say so in their names."""
    for code in set(range(sys.maxunicode + 1)) - {9, 10}:
        character = chr(code)
        directs = re.search("LEFT-TO-RIGHT|RIGHT-TO-LEFT|ARABIC LETTER MARK|DIRECTIONAL", unicodedata.name(character, ""))
        format = unicodedata.category(character) == "Cf" and directs
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or format:
            assert clean(character) == "\ufffd", hex(code)


def test_what_stands_is_left_and_a_page_names_whatever_a_terminal_does_not_get():
    for code in range(sys.maxunicode + 1):
        if clean(chr(code)) != chr(code) and code != 13:
            assert "U+" in shown(chr(code)), hex(code)
    assert clean("a\xad\u200d\u200b\U0001f469\u200d\U0001f4bb\t\n") == "a\xad\u200d\u200b\U0001f469\u200d\U0001f4bb\t\n"
