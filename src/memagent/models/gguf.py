"""Writes a Hugging Face folder of an LFM2 model to a GGUF file for llama.cpp.

GGUF stores tensors under llama.cpp's own names, hyper-parameters as typed keys, and the tokenizer inside the file. What
differs from the folder: convolution layers are marked by zero key-value heads, the depthwise kernel has no middle
dimension, and the feed-forward width is the one the weights have, not the one the configuration starts from.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from memagent.errors import MissingExtraError, ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# llama.cpp has no regular expressions in its files: it knows a tokenizer's splitting rule by a name.
_SPLIT_NAMES = {
    _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST: "llama-bpe",
    _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST: "qwen2",
}


def write_gguf(folder: str | Path, path: str | Path, *, dtype: Literal["f32", "f16"] = "f32") -> Path:
    """Writes the LFM2 model in `folder` to the GGUF file `path` and returns it.

    `dtype` is that of the matrices; vectors and convolution kernels stay in 32 bits, as llama.cpp expects.
    Raises ModelError when the folder is incomplete, is not an LFM2 model, or its tokenizer is of a kind that llama.cpp
    cannot be told about; MissingExtraError without the `gguf` package.
    """
    try:
        import gguf
    except ImportError:
        raise MissingExtraError("writing GGUF", "dev") from None
    folder, path = Path(folder), Path(path)
    config = _read_json(folder / "config.json")
    if config.get("model_type") != "lfm2":
        raise ModelError(f"{folder}: only models of type 'lfm2' can be written, not {config.get('model_type')!r}")
    tensors = dict(_tensors(folder / "model.safetensors"))
    writer = gguf.GGUFWriter(path, "lfm2")
    _add_parameters(writer, config, feed_forward=tensors["model.layers.0.feed_forward.w1.weight"].shape[0])
    _add_tokenizer(writer, folder, config)
    _add_tensors(writer, tensors, config["num_hidden_layers"], dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_parameters(writer: Any, config: dict[str, Any], *, feed_forward: int) -> None:
    head_size = config["hidden_size"] // config["num_attention_heads"]
    heads = config["num_key_value_heads"]
    rope = config.get("rope_parameters") or {}
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv([heads if kind == "full_attention" else 0 for kind in _layer_types(config)])
    writer.add_rope_dimension_count(head_size)
    writer.add_rope_freq_base(float(rope.get("rope_theta") or config.get("rope_theta") or 1_000_000.0))
    writer.add_layer_norm_rms_eps(config["norm_eps"])
    writer.add_shortconv_l_cache(config["conv_L_cache"])
    writer.add_vocab_size(config["vocab_size"])


def _layer_types(config: dict[str, Any]) -> list[str]:
    if config.get("layer_types"):
        return list(config["layer_types"])
    attention = config.get("full_attn_idxs")
    layers = range(config["num_hidden_layers"])
    return ["full_attention" if attention is None or layer in attention else "conv" for layer in layers]


def _add_tokenizer(writer: Any, folder: Path, config: dict[str, Any]) -> None:
    from gguf import TokenType

    data = _read_json(folder / "tokenizer.json")
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
    _add_special_tokens(writer, folder, config)


def _add_special_tokens(writer: Any, folder: Path, config: dict[str, Any]) -> None:
    settings = _read_json(folder / "tokenizer_config.json")
    end = config["eos_token_id"]
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(end[0] if isinstance(end, list) else end)
    if config.get("pad_token_id") is not None:
        writer.add_pad_token_id(config["pad_token_id"])
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


def _add_tensors(writer: Any, tensors: dict[str, NDArray[Any]], layers: int, dtype: str) -> None:
    import gguf
    import numpy as np

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LFM2, layers)
    for name, tensor in tensors.items():
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if target is None:
            raise ModelError(f"tensor {name!r} has no counterpart in llama.cpp's lfm2 architecture")
        kernel = ".conv.conv." in name
        if kernel and tensor.ndim == 3:
            tensor = tensor.squeeze(1)
        small = dtype == "f16" and tensor.ndim == 2 and not kernel
        writer.add_tensor(target, tensor.astype(np.float16) if small else tensor)


def _tensors(path: Path) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Every tensor of a safetensors file as float32. numpy has no bfloat16, so the file is read here."""
    import numpy as np

    try:
        data = path.read_bytes()
        size = struct.unpack_from("<Q", data)[0]
        header = json.loads(data[8 : 8 + size])
    except (OSError, struct.error, ValueError) as error:
        raise ModelError(f"{path}: not a readable safetensors file: {error}") from None
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = (8 + size + offset for offset in entry["data_offsets"])
        yield name, _float32(np.frombuffer(data[start:end], np.uint8), entry["dtype"]).reshape(entry["shape"])


def _float32(raw: NDArray[np.uint8], dtype: str) -> NDArray[np.float32]:
    import numpy as np

    if dtype == "BF16":  # the upper half of a float32
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    kinds = {"F32": np.float32, "F16": np.float16, "F64": np.float64}
    if dtype not in kinds:
        raise ModelError(f"weights of type {dtype} cannot be written; convert the folder to float32 or bfloat16")
    return raw.view(kinds[dtype]).astype(np.float32)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not a readable JSON file: {error}") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path}: expected a JSON object")
    return value
