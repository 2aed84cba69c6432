"""What llama.cpp wants to know of a kind of model, and in which form it wants the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memagent.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memagent.models.gguf.weights import Weights


@dataclass(frozen=True, slots=True)
class Architecture:
    """A Transformer with rotary positions and gated feed-forward layers.

    name     llama.cpp's name of it
    gate     the weight of a layer whose rows are the width of its feed-forward part (the weights know it, where a
             configuration may say what it is computed from)
    rotated  llama.cpp turns pairs of neighbours, where transformers turns the first half of a head with the second: the
             rows of queries and keys are put in its order
    """

    name: str
    gate: str = "mlp.gate_proj"
    rotated: bool = False

    def add_parameters(self, writer: Any, config: dict[str, Any], weights: Weights) -> None:
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(weights.shapes[f"model.layers.0.{self.gate}.weight"][0])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(self.key_value_heads(config))
        writer.add_rope_dimension_count(_head_size(config))
        writer.add_rope_freq_base(_theta(config))
        writer.add_layer_norm_rms_eps(config["norm_eps"] if "norm_eps" in config else config["rms_norm_eps"])
        writer.add_vocab_size(config["vocab_size"])
        if _head_size(config) * config["num_attention_heads"] != config["hidden_size"]:
            writer.add_key_length(_head_size(config))
            writer.add_value_length(_head_size(config))

    def key_value_heads(self, config: dict[str, Any]) -> Any:
        """Their number, or that of each layer."""
        return int(config.get("num_key_value_heads") or config["num_attention_heads"])

    def names(self, layers: int) -> Any:
        """llama.cpp's names of the tensors."""
        import gguf

        kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
        return gguf.get_tensor_name_map(kinds[self.name], layers)

    def made(self, config: dict[str, Any]) -> Mapping[str, Sequence[float]]:
        """Tensors that the folder has not: what the frequencies of Llama 3's long context are divided by."""
        if _rope(config).get("rope_type", "default") == "default":
            return {}
        return {"rope_freqs.weight": _divisors(config)}

    def shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def is_matrix(self, name: str, shape: tuple[int, ...]) -> bool:
        return len(shape) == 2

    def values(self, name: str, tensor: NDArray[np.float32], config: dict[str, Any]) -> NDArray[np.float32]:
        """A tensor of the folder as llama.cpp has it."""
        heads = {"q_proj": config["num_attention_heads"], "k_proj": self.key_value_heads(config)}
        part = name.split(".")[-2]
        if not self.rotated or part not in heads:
            return tensor
        halves = tensor.reshape(heads[part], 2, _head_size(config) // 2, *tensor.shape[1:])
        return halves.swapaxes(1, 2).reshape(tensor.shape)


class Lfm2(Architecture):
    """Short convolutions beside attention: their layers are those without keys, and their kernels have no middle axis."""

    def add_parameters(self, writer: Any, config: dict[str, Any], weights: Weights) -> None:
        super().add_parameters(writer, config, weights)
        writer.add_shortconv_l_cache(config["conv_L_cache"])

    def key_value_heads(self, config: dict[str, Any]) -> Any:
        attention = config.get("full_attn_idxs")
        layers = config.get("layer_types") or [
            "full_attention" if attention is None or layer in attention else "conv"
            for layer in range(config["num_hidden_layers"])
        ]
        return [config["num_key_value_heads"] if kind == "full_attention" else 0 for kind in layers]

    def shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[0], shape[2]) if self._is_kernel(name) and len(shape) == 3 else shape

    def is_matrix(self, name: str, shape: tuple[int, ...]) -> bool:
        return len(shape) == 2 and not self._is_kernel(name)

    def values(self, name: str, tensor: NDArray[np.float32], config: dict[str, Any]) -> NDArray[np.float32]:
        return tensor.reshape(self.shape(name, tensor.shape))

    def _is_kernel(self, name: str) -> bool:
        return ".conv.conv." in name


_KNOWN = {
    "lfm2": Lfm2("lfm2", gate="feed_forward.w1"),
    "llama": Architecture("llama", rotated=True),
    "mistral": Architecture("llama", rotated=True),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3"),
}


def architecture_of(folder: Path, config: dict[str, Any]) -> Architecture:
    """The architecture of a folder with this configuration. Raises ModelError if llama.cpp would compute something else."""
    kind = str(config.get("model_type"))
    if kind not in _KNOWN:
        raise ModelError(
            f"{folder}: models of type {kind!r} cannot be written, only {', '.join(_KNOWN)};"
            " llama.cpp's convert_hf_to_gguf.py knows more"
        )
    rope = _rope(config).get("rope_type", "default")
    if rope not in ("default", "llama3") or (rope == "llama3" and kind != "llama"):
        raise ModelError(f"{folder}: positions of type {rope!r} cannot be written; use llama.cpp's convert_hf_to_gguf.py")
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        raise ModelError(f"{folder}: a sliding window cannot be written; use llama.cpp's convert_hf_to_gguf.py")
    return _KNOWN[kind]


def _head_size(config: dict[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    """The positions, under the name that transformers gives them now, or before its fifth version."""
    found: dict[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return found


def _theta(config: dict[str, Any]) -> float:
    default = 1_000_000.0 if config["model_type"] == "lfm2" else 10_000.0
    return float(_rope(config).get("rope_theta") or config.get("rope_theta") or default)


def _divisors(config: dict[str, Any]) -> Sequence[float]:
    """By how much each frequency is divided, [head size / 2], as transformers computes it."""
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    fields = {name: value for name, value in config.items() if name != "model_type"}
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](AutoConfig.for_model(config["model_type"], **fields), "cpu")
    size = _head_size(config)
    plain = [_theta(config) ** (-2 * number / size) for number in range(size // 2)]
    return [one / float(other) for one, other in zip(plain, scaled, strict=True)]
