"""Token ids of messages for an in-process model, from its chat template.

Text that looks like a special token ("<|end|>" in a document) is data: when a message contains one, template and contents
are tokenized apart, and the contents with special tokens switched off, so that a document cannot close its own message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer as RawTokenizer

# Private-use characters stand for the contents while the template is rendered.
_SLOTS = ("\ue000\ue001\ue000", "\ue000\ue002\ue000")


class ChatFormat:
    """Renders and tokenizes conversations with the chat template of a Hugging Face tokenizer.

    A tokenizer without a template gets the message as plain text, between the special tokens it adds itself.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._raw: RawTokenizer = tokenizer.backend_tokenizer
        self._plain: RawTokenizer = RawTokenizer.from_str(self._raw.to_str())
        self._plain.encode_special_tokens = True
        self._special = [token.content for token in self._raw.get_added_tokens_decoder().values() if token.special]
        self._segments: dict[bool, list[str]] = {}

    @property
    def overhead(self) -> int:
        """The tokens that the chat template adds to one user message."""
        return len(self.encode([{"role": "user", "content": ""}]))

    def encode(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Token ids of the prompt up to the beginning of the reply."""
        contents = [message["content"] for message in messages]
        segments = self._template(with_system=len(messages) > 1)
        if not self._hides_special(contents):
            text = segments[0] + "".join(content + after for content, after in zip(contents, segments[1:], strict=True))
            return self._ids(self._raw, text)
        ids = self._ids(self._raw, segments[0])
        for content, after in zip(contents, segments[1:], strict=True):
            ids += self._ids(self._plain, content) + self._ids(self._raw, after)
        return ids

    def encode_reply(self, text: str) -> list[int]:
        """Token ids of a reply, as a model writes it that uses its tokenizer's own pieces, without one that ends it."""
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    def _template(self, with_system: bool) -> list[str]:
        """The template's text before, between and after the message contents."""
        if with_system not in self._segments:
            roles = ("system", "user") if with_system else ("user",)
            slots = _SLOTS[: len(roles)]
            self._segments[with_system] = self._render(roles, slots)
        return self._segments[with_system]

    def _render(self, roles: Sequence[str], slots: Sequence[str]) -> list[str]:
        if getattr(self._tokenizer, "chat_template", None):
            messages = [{"role": role, "content": slot} for role, slot in zip(roles, slots, strict=True)]
            text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        else:
            start = self._tokenizer.bos_token if getattr(self._tokenizer, "add_bos_token", False) else None
            text = (start or "") + "\n".join(slots)
        segments = []
        for slot in slots:
            before, found, text = text.partition(slot)
            if not found:
                raise ValueError("the chat template does not show every message")
            segments.append(before)
        return [*segments, text]

    def _hides_special(self, contents: Sequence[str]) -> bool:
        return any(token in content for content in contents for token in self._special)

    @staticmethod
    def _ids(tokenizer: RawTokenizer, text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids) if text else []


def stop_ids(configured: int | Sequence[int] | None, tokenizer: Any) -> frozenset[int]:
    """The tokens that end a reply: a generation config's `eos_token_id`, and the tokenizer's where that is none or one."""
    ids = configured if isinstance(configured, list | tuple) else [configured, tokenizer.eos_token_id]
    return frozenset(token for token in ids if token is not None)
