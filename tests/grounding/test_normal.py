"""The levelled form of a text, and the way back to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.grounding.normal import normal

PIECES = st.sampled_from(
    [
        *"abzÄßé中文한カ가1",
        "e\u0301",
        "ﬁ",
        " ",
        "\n",
        "\u00a0",
        "-",
        "-\n",
        "—",
        "--",
        " - ",
        "“",
        "’",
        "\u00ad",
        "\u200b",
        "*",
        "\x1b[31m",
        "…",
    ]
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The  quick\n brown\tfox", "the quick brown fox"),
        ("\x1b[31;1mThe amber\x1b[0m code", "the amber code"),
        ("\x1b[2KThe amber", "the amber"),
        ("“It’s” 'quoted'", '"It\'s" ‘quoted’'),
        ("an exam-\nple", "an example"),
        ("a well-known case", "a well-\nknown case"),
        ("a soft\u00adhyphen and a zero\u200bwidth space", "a softhyphen and a zerowidth space"),
        ("years—never mind", "years -- never mind"),
        ("years – never mind", "years - never mind"),
        ("a ﬁne ﬂow", "a fine flow"),
        ("cafe\u0301", "café"),
        ("the **bold** word", "the bold word"),
        ("中文\n字", "中文字"),
        ("カ\u3099ス", "ガス"),
        ("\u1112\u1161\u11ab", "한"),
        ("Ａ１", "a1"),
        ("−5", "-5"),
        ("Straße", "STRASSE"),
    ],
)
def test_what_typesetting_changes_is_levelled(one: str, other: str) -> None:
    assert normal(one).text == normal(other).text


@pytest.mark.parametrize(
    ("one", "other"),
    [("2020-2021", "20202021"), ("a cat", "a hat"), ("not here", "now here"), ("5.1", "51"), ("-5", "5"), ("a b", "ab")],
)
def test_what_says_something_else_stays_apart(one: str, other: str) -> None:
    assert normal(one).text != normal(other).text


@given(st.lists(PIECES, max_size=40).map("".join))
def test_every_character_knows_where_it_came_from(text: str) -> None:
    level = normal(text)
    assert len(level.text) == len(level.starts) == len(level.ends)
    assert all(0 <= start < end <= len(text) for start, end in zip(level.starts, level.ends, strict=True))
    assert list(level.starts) == sorted(level.starts)
    assert list(level.ends) == sorted(level.ends)
    for char, start, end in zip(level.text, level.starts, level.ends, strict=True):
        assert char in normal(text[start:end]).text or char == " "
