"""The tokenizer and the chat template of a folder, as a GGUF file holds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memagent.errors import ModelError
from memagent.models.gguf.folder import read_json

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# llama.cpp has no regular expressions in its files: it knows a tokenizer's splitting rule by a name.
_SPLIT_NAMES = {
    _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST: "llama-bpe",
    _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST: "qwen2",
}


def add_tokenizer(writer: Any, folder: Path, config: dict[str, Any]) -> None:
    """Adds them. Raises ModelError for a tokenizer that llama.cpp cannot be told about."""
    from gguf import TokenType

    data = read_json(folder / "tokenizer.json")
    if data["model"].get("type") != "BPE":
        raise ModelError(f"{folder}: only byte-level BPE tokenizers can be written, not {data['model'].get('type')!r}")
    kinds = dict.fromkeys(data["model"]["vocab"].values(), TokenType.NORMAL)
    names = {number: token for token, number in data["model"]["vocab"].items()}
    for added in data.get("added_tokens", []):
        names[added["id"]] = added["content"]
        kinds[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    numbers = range(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_split_name(folder, data))
    # Rows of the embedding that no token uses still need a name of their own.
    writer.add_token_list([names.get(number, f"[PAD{number}]") for number in numbers])
    writer.add_token_types([kinds.get(number, TokenType.UNUSED) for number in numbers])
    merges = data["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    _add_special_tokens(writer, folder, config, {name: number for number, name in names.items()})


def _add_special_tokens(writer: Any, folder: Path, config: dict[str, Any], numbers: dict[str, int]) -> None:
    settings = read_json(folder / "tokenizer_config.json")
    known = config.get("eos_token_id")
    ends = list(known) if isinstance(known, list) else [known]
    if known is None or not ends:
        raise ModelError(f"{folder / 'config.json'}: no eos_token_id: llama.cpp would not know where a reply ends")
    # llama.cpp has two: the end of a text and that of a turn. The first is the one that the tokenizer names.
    token = settings.get("eos_token")
    named = numbers.get(str(token["content"] if isinstance(token, dict) else token))
    ends.sort(key=lambda end: end != named)
    writer.add_eos_token_id(ends[0])
    if len(ends) > 1:
        writer.add_eot_token_id(ends[1])
    for name, add in (("bos_token_id", writer.add_bos_token_id), ("pad_token_id", writer.add_pad_token_id)):
        if config.get(name) is not None:
            add(config[name])
    # The chat template writes the first token itself; llama.cpp would add a second one by default.
    writer.add_add_bos_token(False)
    separate = folder / "chat_template.jinja"
    template = separate.read_text(encoding="utf-8") if separate.exists() else settings.get("chat_template")
    if template:
        writer.add_chat_template(template)


def _split_name(folder: Path, data: dict[str, Any]) -> str:
    step = data.get("pre_tokenizer") or {}
    steps = step.get("pretokenizers", [step])
    for step in steps:
        if step.get("type") == "Split" and step["pattern"].get("Regex") in _SPLIT_NAMES:
            return _SPLIT_NAMES[step["pattern"]["Regex"]]
    if len(steps) == 1 and steps[0].get("type") == "ByteLevel" and steps[0].get("use_regex", True):
        return "gpt-2"
    raise ModelError(f"{folder}: llama.cpp does not support the pre-tokenization of this tokenizer: {steps!r}")
