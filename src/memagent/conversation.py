"""Which part of a conversation is the document, and which the question.

1. Files are the document; the text of the last user message is the question.
2. Otherwise, of several messages, the last user message is the question, and what was said before it the document.
3. Otherwise, of one message, its last paragraph is the question, and what stands before that the document. A message of one
   paragraph is both.

The second rule has one exception: if the last user message is the longest, as where instructions stand in a system message,
it is taken for one message. So has the third: a paragraph that is too long to be a question, as where the question follows
the text in a line of its own, ends with the question in its last line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from memagent.errors import ConfigError

File = TypeVar("File")

_PARAGRAPH = re.compile(r"\n\s*\n")
# Characters of a paragraph that may still be a question: with choices, or with what to look out for.
_QUESTION = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Said(Generic[File]):
    """One message: whose it is ("user", "assistant", "system" …), its text, and the files that came with it."""

    role: str
    text: str
    files: Sequence[File] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Generic[File]):
    """A question and its document: a text, or files."""

    question: str
    text: str = ""
    files: tuple[File, ...] = ()


def asked(messages: Sequence[Said[File]]) -> Asked[File]:
    """The question and the document of a conversation. Raises ConfigError if there is no question."""
    files = tuple(file for message in messages for file in message.files)
    users = [number for number, message in enumerate(messages) if message.role == "user" and message.text.strip()]
    if not users:
        raise ConfigError("there is no user message with text: the last one asks the question")
    last = messages[users[-1]].text.strip()
    if files:
        return Asked(question=last, files=files)
    before = [text for message in messages[: users[-1]] if (text := message.text.strip())]
    if before and max(map(len, before)) >= len(last):
        return Asked(question=last, text="\n\n".join(before))
    return _parted(last, before)


def _parted(text: str, before: Sequence[str]) -> Asked[File]:
    """One message as document and question; instructions that came before it belong to the question."""
    document, question = _document_and_question(text)
    return Asked(question="\n".join([*before, question]), text=document)


def _document_and_question(text: str) -> tuple[str, str]:
    borders = list(_PARAGRAPH.finditer(text))
    start, end = borders[-1].span() if borders else (len(text), 0)
    if len(text) - end > _QUESTION and "\n" in text[end:]:
        document, _, question = text.rpartition("\n")
        return document, question.strip()
    return text[:start], text[end:].strip()
