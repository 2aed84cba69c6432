"""Counts tokens by asking the server of the model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Any

from memagent.core.types import Tokenizer
from memagent.errors import ModelUnavailableError
from memagent.models.side_channel import SideChannel
from memagent.models.tokenizers import EstimateTokenizer, character_ends, stretch

_PROBE = "x"
_CACHED_COUNTS = 256


class ServerTokenizer:
    """The tokenizer behind a server's `/tokenize`: that of llama.cpp, or that of vLLM and SGLang.

    Counts are exact, for text on its own; vLLM takes what looks like a special token for one, as it does in chats. `ends`
    is exact with llama.cpp, which returns pieces; elsewhere there are exactly `count` offsets, spread as the estimate
    spreads them. Recent counts are remembered. Raises ModelUnavailableError when the server stops answering.
    """

    exact = True
    at_once = 8  # requests, each of which is mostly waited for

    def __init__(self, channel: SideChannel, model: str, *, pieces: bool) -> None:
        self.name = f"server:{model}@{channel.endpoint.base_url}"
        self._channel = channel
        self._model = model
        self._pieces = pieces
        self._remembered = lru_cache(_CACHED_COUNTS)(self._ask_count)

    @classmethod
    def find(cls, channel: SideChannel, model: str) -> ServerTokenizer | None:
        """The server's tokenizer, or None if it has no such route."""
        for pieces in (True, False):
            candidate = cls(channel, model, pieces=pieces)
            # No text is no tokens: a server that says so does not know the field that we put the text into.
            if _size(candidate._post("tokenize", candidate._body(_PROBE))):
                return candidate
        return None

    def count(self, text: str) -> int:
        """How many tokens `text` is."""
        return self._remembered(text) if text else 0

    def ends(self, text: str) -> list[int]:
        """The character offset after each token."""
        if not self._pieces:
            return stretch(EstimateTokenizer().ends(text), self.count(text), len(text))
        reply = self._ask({**self._body(text), "with_pieces": True})
        sizes = [_bytes(token["piece"]) for token in reply["tokens"]]
        ends = character_ends(text, list(accumulate(sizes)))
        return [*ends[:-1], len(text)] if ends else []

    def overhead(self) -> int | None:
        """The tokens that the server's chat template adds to a message; None if the server does not report it."""
        messages = [{"role": "user", "content": _PROBE}]
        if self._pieces:
            prompt = self._post("apply-template", {"messages": messages})
            if not isinstance(prompt, Mapping) or not isinstance(prompt.get("prompt"), str):
                return None
            reply = self._post("tokenize", {"content": prompt["prompt"], "add_special": True, "parse_special": True})
        else:
            reply = self._post("tokenize", {"model": self._model, "messages": messages})
        total = _size(reply)
        return None if total is None else max(0, total - self.count(_PROBE))

    def _body(self, text: str) -> dict[str, Any]:
        if self._pieces:
            return {"content": text, "parse_special": False}
        return {"model": self._model, "prompt": text, "add_special_tokens": False}

    def _ask_count(self, text: str) -> int:
        return _size(self._ask(self._body(text))) or 0

    def _ask(self, body: Mapping[str, Any]) -> Any:
        for _ in range(2):  # once more: the first connection may have been dropped while idle
            reply = self._post("tokenize", body)
            if _size(reply) is not None:
                return reply
        raise ModelUnavailableError(f"{self._channel.endpoint.root}/tokenize no longer returns token counts")

    def _post(self, route: str, body: Mapping[str, Any]) -> Any:
        return self._channel.ask(f"{self._channel.endpoint.root}/{route}", body)


def tokenizer_for_server(channel: SideChannel, model: str, local: Tokenizer | None = None) -> Tokenizer:
    """The best available tokenizer: the given one, otherwise the server's, otherwise an estimate."""
    return local or ServerTokenizer.find(channel, model) or EstimateTokenizer()


def _size(reply: object) -> int | None:
    if not isinstance(reply, Mapping):
        return None
    if isinstance(reply.get("count"), int):
        return int(reply["count"])
    return len(reply["tokens"]) if isinstance(reply.get("tokens"), list) else None


def _bytes(piece: str | list[int]) -> int:
    """Bytes of one token: llama.cpp lists them where they are not whole characters."""
    return len(piece.encode()) if isinstance(piece, str) else len(piece)
