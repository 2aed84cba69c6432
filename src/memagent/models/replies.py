"""Interprets a server's response to a chat completion as a completion or a kind of failure.

Pure functions of status and body. They are lenient where servers differ (missing usage, content in parts, reasoning under
three names) and strict where a lenient reading would turn a fault into an empty answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from memagent.core.types import Completion
from memagent.errors import ContextTooLongError, ModelError, ModelRefusedError
from memagent.models.retrying import is_transient

# How servers say "too long": OpenAI and vLLM; llama.cpp; SGLang and Ollama; TGI; hosted APIs.
_TOO_LONG = re.compile(
    r"context_length_exceeded|max(?:imum)? context length|longer than the (?:maximum )?model"
    r"|exceed_context_size|input is too large to process"
    r"|exceed(?:s|ed)? (?:the |its )?(?:available |maximum |model'?s? )*(?:context|allowed length)"
    r"|`?inputs`? (?:tokens \+ `?max_new_tokens`? must be|must have less than)"
    r"|(?:prompt|input) is too (?:long|big|large)|prompt too long|exceeds the maximum number of tokens"
    r"|context length of only",
    re.IGNORECASE,
)
_KEYS = re.compile(r"\b(sk-|Bearer\s+|Basic\s+)[A-Za-z0-9_\-.=+/]{6,}")


class TransientError(ModelError):
    """A failure that may not happen again. `asked` is the wait that the server requested, in seconds, and `status` what it
    answered, if it did."""

    def __init__(self, message: str, asked: float | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.asked, self.status = asked, status


class GarbledReplyError(TransientError):
    """The server reported success, but its reply is not a completion."""


def redact(text: str, secrets: Iterable[str]) -> str:
    """`text` without the given secrets and without anything that looks like an API key."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "***")
    return _KEYS.sub(r"\1***", text)


def failure(status: int, body: str, asked: float | None = None) -> ModelError:
    """The error for a reply with a failing `status`: too long, transient, or refused (with the server's own words)."""
    message = error_message(body)
    if status == 413 or _TOO_LONG.search(body):
        return ContextTooLongError(f"the server reports that the request is too long: {message}")
    if is_transient(status) and "insufficient_quota" not in body:  # sent with 429, but waiting does not pay the bill
        return TransientError(f"HTTP {status}: {message}", asked, status)
    return ModelRefusedError(f"the server refused the request (HTTP {status}): {message}")


def error_message(body: str, limit: int = 600) -> str:
    """The message in an error body of any common form, at most `limit` characters."""
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        value = body.strip()
    while isinstance(value, Mapping):
        value = next((value[key] for key in ("error", "message", "detail") if value.get(key)), str(dict(value)))
    return (value if isinstance(value, str) else json.dumps(value))[:limit] or "no explanation"


def completion(body: str, seconds: float) -> Completion:
    """The completion in the body of a successful reply.

    Raises GarbledReplyError for a body that is no completion, ModelRefusedError where content was filtered or refused,
    and the error inside the body of a server that reports failures with status 200.
    """
    data = _object(body)
    if data.get("error"):
        code = data["error"].get("code") if isinstance(data["error"], Mapping) else None
        raise failure(code if isinstance(code, int) else 502, body)
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise GarbledReplyError(f"the reply has no choices: {body[:200]!r}")
    message = choices[0].get("message")
    if not isinstance(message, Mapping):
        raise GarbledReplyError(f"the choice in the reply has no message: {body[:200]!r}")
    reason = choices[0].get("finish_reason")
    text, reasoning = _content(message, reason)
    usage = data.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, Mapping) else None
    return Completion(
        text=text,
        finish="length" if reason == "length" else "stop",
        prompt_tokens=_number(usage, "prompt_tokens"),
        completion_tokens=_number(usage, "completion_tokens"),
        cached_tokens=_number(details, "cached_tokens"),
        reasoning=reasoning,
        seconds=seconds,
    )


def _object(body: str) -> Mapping[str, Any]:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise GarbledReplyError(f"the reply is not JSON: {body[:200]!r}") from None
    if not isinstance(data, Mapping):
        raise GarbledReplyError(f"the reply is not a JSON object: {body[:200]!r}")
    return data


def _content(message: Mapping[str, Any], reason: object) -> tuple[str, str]:
    if reason == "content_filter":
        raise ModelRefusedError("the server's content filter withheld the reply")
    reasoning = next((value for key in _REASONING if isinstance(value := message.get(key), str) and value), "")
    content = message.get("content")
    if isinstance(content, list):  # parts: some servers return what the protocol only allows in requests
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        content = "".join(text for text in texts if isinstance(text, str))
    if isinstance(content, str):
        return content, reasoning
    if message.get("refusal"):
        raise ModelRefusedError(f"the model refused: {message['refusal']}")
    if not reasoning:
        raise GarbledReplyError("the reply has neither text nor reasoning")
    return "", reasoning


_REASONING = ("reasoning_content", "reasoning", "thinking")
_MOST_TOKENS = 1 << 40  # a server that counts more counts something else


def _number(usage: object, key: str) -> int:
    value = usage.get(key) if isinstance(usage, Mapping) else None
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value <= _MOST_TOKENS else 0
