"""Which part of a conversation is read, and which is asked."""

from __future__ import annotations

import pytest

from memagent.conversation import Said, asked
from memagent.errors import ConfigError

LINES = "\n".join(f"Line {number} of a long text." for number in range(200))


def said(*messages: tuple[str, str]) -> list[Said[str]]:
    return [Said(role=role, text=text) for role, text in messages]


@pytest.mark.parametrize(
    ("messages", "document", "question"),
    [
        ([("user", "A long text.\n\nOf two parts.\n\nWhat is it?")], "A long text.\n\nOf two parts.", "What is it?"),
        ([("user", "What is it?")], "What is it?", "What is it?"),
        ([("system", "Read a long text."), ("user", "What is it?")], "Read a long text.", "What is it?"),
        ([("user", "A long text."), ("assistant", "Read."), ("user", "What?")], "A long text.\n\nRead.", "What?"),
        ([("system", "Be brief."), ("user", "A long text, long.\n\nWhat?")], "A long text, long.", "Be brief.\nWhat?"),
        ([("user", "A long text."), ("user", "What is it?"), ("assistant", "Well")], "A long text.", "What is it?"),
    ],
)  # fmt: skip
def test_the_long_part_is_the_document_and_the_last_question_the_question(messages, document, question) -> None:
    found = asked(said(*messages))
    assert (found.text, found.question) == (document, question)


@pytest.mark.parametrize("before", ["", "Remember the lines.\n\n"])
def test_the_last_line_of_a_paragraph_that_is_too_long_to_be_a_question_is_the_question(before) -> None:
    found = asked(said(("user", f"{before}{LINES}\n What is line 3? \n")))
    assert (found.text, found.question) == (before + LINES, "What is line 3?")


def test_a_question_may_have_lines() -> None:
    question = "Which of them?\nA) one\nB) two\nAnswer with a letter."
    found = asked(said(("system", "Be brief."), ("user", f"{LINES}\n\n{question}")))
    assert (found.text, found.question) == (LINES, f"Be brief.\n{question}")


def test_a_long_text_without_a_border_is_both() -> None:
    text = "word " * 1000
    assert asked(said(("user", text))) == asked(said(("user", text.strip())))
    assert asked(said(("user", text))).question == asked(said(("user", text))).text == text.strip()


def test_files_are_the_document_and_all_that_was_said_last_the_question() -> None:
    found = asked([Said(role="user", text="See.", files=["a"]), Said(role="user", text="One.\n\nTwo?", files=["b"])])
    assert (found.question, found.text, found.files) == ("One.\n\nTwo?", "", ("a", "b"))


def test_a_conversation_without_a_question_is_refused() -> None:
    with pytest.raises(ConfigError, match="no user message with text"):
        asked(said(("system", "Be brief."), ("user", " ")))
