"""Which part of a conversation is the document, and which the question.

1. Files are the document; the text of the last user message is the question, after what system messages say.
2. Otherwise, of several messages, the last user message is the question, and what was said before it the document.
3. Otherwise, of one message, its last paragraph is the question, and what stands before that the document. A message of one
   paragraph is both.

The second rule has one exception: if the last user message is the longest, as where instructions stand in a system message,
it is taken for one message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from memagent.errors import ConfigError
from memagent.server.schemas import FilePart, Message

_PARAGRAPH = re.compile(r"\n\s*\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question and its document: a text, or files."""

    question: str
    text: str = ""
    files: tuple[FilePart, ...] = ()


def asked(messages: Sequence[Message]) -> Asked:
    """The question and the document of a conversation. Raises ConfigError if there is no question."""
    files = tuple(file for message in messages for file in _files(message))
    users = [number for number, message in enumerate(messages) if message.role == "user" and _text(message).strip()]
    if not users:
        raise ConfigError("there is no user message with text: the last one asks the question")
    last = _text(messages[users[-1]]).strip()
    if files:
        told = [_text(message).strip() for message in messages[: users[-1]] if message.role in ("system", "developer")]
        return Asked(question="\n".join([*filter(None, told), last]), files=files)
    before = [text for message in messages[: users[-1]] if (text := _text(message).strip())]
    if before and max(map(len, before)) >= len(last):
        return Asked(question=last, text="\n\n".join(before))
    return _parted(last, before)


def asked_again(messages: Sequence[Message]) -> str:
    """The question of a conversation that goes on from a memory: all that is said. Raises ConfigError if there is none, or
    something to read."""
    if any(_files(message) for message in messages):
        raise ConfigError("another question is answered from the memory alone: ask without files, or begin a new reading")
    question = "\n".join(text for message in messages if (text := _text(message).strip()))
    if not question:
        raise ConfigError("there is no message with text: it asks the question")
    return question


def _parted(text: str, before: Sequence[str]) -> Asked:
    """One message as document and question; instructions that came before it belong to the question."""
    borders = list(_PARAGRAPH.finditer(text))
    if not borders:
        return Asked(question="\n".join([*before, text]), text=text)
    question = text[borders[-1].end() :].strip()
    return Asked(question="\n".join([*before, question]), text=text[: borders[-1].start()])


def _text(message: Message) -> str:
    if isinstance(message.content, list):
        return "\n".join(part.text for part in message.content if part.text)
    return message.content or ""


def _files(message: Message) -> list[FilePart]:
    if not isinstance(message.content, list):
        return []
    return [part.file for part in message.content if part.file is not None]
