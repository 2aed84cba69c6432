"""The tokenizer and the chat template of a folder, as a GGUF file holds them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import gguf

from memagent.errors import ModelError
from memagent.models.gguf.folder import read_json

log = logging.getLogger("memagent.models")

CONVERTER = "use llama.cpp's convert_hf_to_gguf.py"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# llama.cpp has no regular expressions in its files: it knows a tokenizer's splitting rule by a name.
_SPLIT_NAMES = {
    _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST: "llama-bpe",
    _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST: "qwen2",
}
_EACH_DIGIT = {"type": "Digits", "individual_digits": True}


def add_tokenizer(writer: Any, folder: Path, config: dict[str, Any]) -> None:
    """Adds them. Raises ModelError for a tokenizer that llama.cpp cannot be told about."""
    data = read_json(folder / "tokenizer.json")
    settings = read_json(folder / "tokenizer_config.json")
    name = _split_name(folder, data)
    kinds = dict.fromkeys(data["model"]["vocab"].values(), gguf.TokenType.NORMAL)
    names = {number: token for token, number in data["model"]["vocab"].items()}
    for added in data.get("added_tokens", []):
        names[added["id"]] = added["content"]
        kinds[added["id"]] = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
    numbers = range(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    # Rows of the embedding that no token uses still need a name of their own.
    writer.add_token_list([names.get(number, f"[PAD{number}]") for number in numbers])
    writer.add_token_types([kinds.get(number, gguf.TokenType.UNUSED) for number in numbers])
    try:
        special = gguf.SpecialVocab(folder, load_merges=True, n_vocab=len(numbers))
        separate = folder / "chat_template.jinja"  # comes first, as in transformers
        template = separate.read_text("utf-8") if separate.exists() else special.chat_template
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder}: the tokenizer's files cannot be read: {error}") from error
    special.chat_template = template
    if not template:
        log.warning("%s has no chat template: llama.cpp will use ChatML, which the model may not know", folder)
    ends = _ends(folder, config, special.special_token_ids.get("eos"))
    special.special_token_ids["eos"] = ends[0]
    if len(ends) > 1:  # llama.cpp has two: the end of a text, and that of a turn
        special.special_token_ids["eot"] = ends[1]
    if "bos_token" in str(template) and not settings.get("bos_token"):
        raise ModelError(f"{folder}: the chat template uses bos_token, and tokenizer_config.json does not say which it is")
    special.add_to_gguf(writer, quiet=True)


def _ends(folder: Path, config: dict[str, Any], named: int | None) -> list[int]:
    """The tokens that end a reply, that of the tokenizer first."""
    path = folder / "generation_config.json"
    ends: list[int] = []
    for known in (named, config.get("eos_token_id"), read_json(path).get("eos_token_id") if path.exists() else None):
        ends += [end for end in (known if isinstance(known, list) else [known]) if end is not None and end not in ends]
    if not ends:
        raise ModelError(f"{folder / 'config.json'}: no eos_token_id: llama.cpp would not know where a reply ends")
    return ends


def _split_name(folder: Path, data: dict[str, Any]) -> str:
    """llama.cpp's name of how the tokenizer cuts a text into words."""
    if data["model"].get("type") != "BPE" or data["model"].get("byte_fallback"):
        kind = "SentencePiece" if data["model"].get("byte_fallback") else data["model"].get("type")
        raise ModelError(f"{folder}: only byte-level BPE tokenizers can be written, not {kind}: {CONVERTER}")
    if (normalizer := data.get("normalizer")) and normalizer["type"] != "NFC":
        raise ModelError(f"{folder}: llama.cpp does not normalize text by {normalizer['type']}, as this tokenizer does")
    step = data.get("pre_tokenizer") or {}
    *before, last = steps = step.get("pretokenizers", [step])
    plain = last.get("type") == "ByteLevel" and not last.get("add_prefix_space", True)
    if plain and before in ([], [_EACH_DIGIT]) and last.get("use_regex", True):
        return "smollm" if before else "gpt-2"
    if plain and len(before) == 1 and not last.get("use_regex", True):
        (split,) = before
        whole = (split.get("behavior"), split.get("invert", False)) in (("Isolated", False), ("Removed", True))
        if split.get("type") == "Split" and whole and split["pattern"].get("Regex") in _SPLIT_NAMES:
            return _SPLIT_NAMES[split["pattern"]["Regex"]]
    known = "Llama 3, Qwen, SmolLM and GPT-2"
    raise ModelError(f"{folder}: only the splitting rules of {known} are known, not {steps!r}: {CONVERTER}")
