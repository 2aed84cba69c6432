"""Which part of a conversation is read, and which is asked."""

from __future__ import annotations

import pytest

from memagent.conversation import Said, asked, asked_again
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
        ([("user", "A text."), ("system", " "), ("assistant", "Yes"), ("user", "What?")], "A text.\n\nYes", "What?"),
        ([("user", "A text.\n \n  What?\n")], "A text.", "What?"),
    ],
)  # fmt: skip
def test_the_long_part_is_the_document_and_the_last_question_the_question(messages, document, question) -> None:
    found = asked(said(*messages))
    assert (found.text, found.question) == (document, question)


@pytest.mark.parametrize(
    "before", [["A long text."], ["Hi", "A long text."], ["Hi", "A long text.", "Hm"], ["A long text.", "Hm"]]
)
def test_the_document_comes_before_the_question_if_one_message_of_it_is_as_long_as_that(before) -> None:
    last = "One.\n\nTwo?!"
    assert len(last) == len("A long text.") - 1
    for question in (last, f"{last}!"):
        found = asked(said(*(("user", text) for text in before), ("user", question)))
        assert (found.text, found.question) == ("\n\n".join(before), question)
    found = asked(said(*(("user", text) for text in before), ("user", f"{last}!!")))
    assert (found.text, found.question) == ("One.", "\n".join([*before, "Two?!!!"])), "the last is the longest"


@pytest.mark.parametrize("before", ["", "Remember the lines.\n\n"])
def test_the_last_line_of_a_paragraph_that_is_too_long_to_be_a_question_is_the_question(before) -> None:
    found = asked(said(("user", f"{before}{LINES}\n What is line 3? \n")))
    assert (found.text, found.question) == (before + LINES, "What is line 3?")


def test_a_question_may_have_lines() -> None:
    question = "Which of them?\nA) one\nB) two\nAnswer with a letter."
    found = asked(said(("system", "Be brief."), ("user", f"{LINES}\n\n{question}")))
    assert (found.text, found.question) == (LINES, f"Be brief.\n{question}")


def test_a_paragraph_of_2000_characters_may_be_a_question() -> None:
    question = f"Which of them?\n{'A' * 1985}"
    assert len(question) == 2000
    found = asked(said(("user", f"A text.\n\n{question}")))
    assert (found.text, found.question) == ("A text.", question)
    found = asked(said(("user", f"A text.\n\n{question}A")))
    assert (found.text, found.question) == ("A text.\n\nWhich of them?", "A" * 1986)


def test_a_long_paragraph_of_one_line_is_the_question() -> None:
    found = asked(said(("user", f"A text.\n\n{'A' * 2001}")))
    assert (found.text, found.question) == ("A text.", "A" * 2001)


def test_a_long_text_without_a_border_is_both() -> None:
    text = "word " * 1000
    assert asked(said(("user", text))) == asked(said(("user", text.strip())))
    assert asked(said(("user", text))).question == asked(said(("user", text))).text == text.strip()


def test_files_are_the_document_and_all_that_was_said_last_the_question() -> None:
    found = asked([Said(role="user", text="See.", files=["a"]), Said(role="user", text="One.\n\nTwo?", files=["b"])])
    assert (found.question, found.text, found.files) == ("One.\n\nTwo?", "", ("a", "b"))


@pytest.mark.parametrize("role", ["user", "system", "assistant", "tool"])
def test_files_of_any_message_are_the_document(role) -> None:
    found = asked([Said(role=role, text="", files=["a"]), Said(role="user", text="A text that is long.\n\nWhat?")])
    assert (found.question, found.text, found.files) == ("A text that is long.\n\nWhat?", "", ("a",))


def test_with_files_the_question_comes_after_what_system_messages_said_before_it() -> None:
    roles = ("system", "assistant", "developer", "user", "system", "tool", "user", "system", "assistant")
    texts = (" Be brief. ", "Yes", "Be kind.", "Hi", " ", "42", "Who?", "Later", "Ann")
    found = asked([Said(role="user", text="", files=["a"]), *said(*zip(roles, texts, strict=True))])
    assert (found.question, found.text) == ("Be brief.\nBe kind.\nWho?", "")


def test_a_conversation_without_a_question_is_refused() -> None:
    with pytest.raises(ConfigError, match="no user message with text"):
        asked(said(("system", "Be brief."), ("user", " ")))


def test_all_that_is_said_is_the_question_to_a_memory() -> None:
    assert asked_again(said(("system", " Be brief."), ("user", " "), ("assistant", "Yes"), ("user", "Who?\n"))) == (
        "Be brief.\nYes\nWho?"
    )


def test_what_asks_a_memory_has_text_and_no_files() -> None:
    with pytest.raises(ConfigError, match="no message with text: it asks the question"):
        asked_again(said(("user", " ")))
    with pytest.raises(ConfigError, match="ask without files"):
        asked_again([Said(role="user", text="Who?", files=["a"]), Said(role="user", text="And when?")])
