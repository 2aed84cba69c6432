"""Asks a server for its models and their windows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memagent.models.side_channel import SideChannel

# What Ollama gives a request unless the model or the server says otherwise, however long the model's own context is.
OLLAMA_DEFAULT_WINDOW = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """`kind` is "vllm", "llamacpp", "sglang", "ollama" or what the server calls itself; `models` are the names it lists;
    `window` is the longest prompt + reply in tokens, and `slots` how many requests it works on at once, None when it does
    not say."""

    kind: str = ""
    models: tuple[str, ...] = ()
    window: int | None = None
    slots: int | None = None


def discover(channel: SideChannel, model: str) -> ServerFacts | None:
    """Asks the server at the other end of `channel` about `model`. None when it gives no usable list of models.

    vLLM and SGLang state `max_model_len` in that list, llama.cpp the context of one slot in `/props`. For Ollama the answer
    is what a request really gets: its `num_ctx` where set, else the loaded model's context, else the default of 4096.
    """
    listing = channel.ask(f"{channel.endpoint.base_url}/models")
    entries = listing.get("data") if isinstance(listing, Mapping) else None
    entries = [entry for entry in entries or [] if isinstance(entry, Mapping) and "id" in entry]
    if not entries:
        return None
    kind = str(entries[0].get("owned_by") or "")
    kind = "ollama" if kind == "library" else kind
    named: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        name = str(entry["id"])
        # Ollama takes a name without its tag for the latest one.
        named.update(dict.fromkeys([name, name.removesuffix(":latest"), *map(str, entry.get("aliases") or [])], entry))
    slots = None
    if kind == "llamacpp":
        window, slots = _llama_slots(channel)
    elif kind == "ollama":
        window = _ollama_window(channel, model)
    else:
        window = _listed_window(named.get(model, {}))
    return ServerFacts(kind=kind, models=tuple(named), window=window, slots=slots)


def _listed_window(entry: Mapping[str, Any]) -> int | None:
    keys = ("max_model_len", "context_length", "context_window", "max_context_length")
    return next((entry[key] for key in keys if _positive(entry.get(key))), None)


def _llama_slots(channel: SideChannel) -> tuple[int | None, int | None]:
    """The window of a slot, and how many slots there are."""
    properties = channel.ask(f"{channel.endpoint.root}/props")
    known = properties if isinstance(properties, Mapping) else {}
    settings = known.get("default_generation_settings")
    window = settings.get("n_ctx") if isinstance(settings, Mapping) else None
    slots = known.get("total_slots")
    return window if _positive(window) else None, slots if _positive(slots) else None


def _ollama_window(channel: SideChannel, model: str) -> int | None:
    shown = channel.ask(f"{channel.endpoint.root}/api/show", {"model": model})
    if not isinstance(shown, Mapping):
        return None
    information = shown.get("model_info") or {}
    longest = next((value for key, value in information.items() if key.endswith(".context_length")), None)
    chosen = re.search(r"^num_ctx\s+(\d+)", str(shown.get("parameters") or ""), re.MULTILINE)
    window = int(chosen.group(1)) if chosen else _ollama_loaded(channel, model) or OLLAMA_DEFAULT_WINDOW
    return min(window, longest) if isinstance(longest, int) and longest > 0 else window


def _ollama_loaded(channel: SideChannel, model: str) -> int | None:
    running = channel.ask(f"{channel.endpoint.root}/api/ps")
    models = running.get("models") if isinstance(running, Mapping) else None
    for entry in models or []:
        if entry.get("name") in (model, f"{model}:latest") and _positive(entry.get("context_length")):
            return int(entry["context_length"])
    return None


def speculation(channel: SideChannel) -> tuple[int, int] | None:
    """Tokens that the server guessed for speculative decoding since it started, and how many of those were right: (0, 0)
    where it guesses none, None where it does not show them. llama.cpp does with --metrics."""
    text = channel.text(f"{channel.endpoint.root}/metrics")
    if text is None or not _SHOWS_GUESSES.search(text):
        return None
    found = {"draft": 0.0, "accepted": 0.0}
    for name, value in _SPECULATION.findall(text):
        found[name] += float(value)
    return int(found["draft"]), int(found["accepted"])


# Servers that count their guesses.
_SHOWS_GUESSES = re.compile(r"^(?:vllm|llamacpp):", re.MULTILINE)
# One line for each engine of vLLM.
_SPECULATION = re.compile(
    r"^\w+:spec_decode_num_(draft|accepted)_tokens(?:_total)?(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE
)


def _positive(value: object) -> bool:
    return isinstance(value, int) and value > 0
