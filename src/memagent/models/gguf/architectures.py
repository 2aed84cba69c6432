"""What llama.cpp wants to know of a kind of model, and in which form it wants the weights.

Configurations are those that transformers makes of a folder: with its defaults, and with the names of its present version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from memagent.errors import ModelError
from memagent.models.gguf.folder import read_json
from memagent.models.gguf.tokenizer import CONVERTER

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
_ATTENTION = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True)
class Architecture:
    """A Transformer with rotary positions and gated feed-forward layers.

    name     llama.cpp's name of it
    gate     the weight of a layer whose rows are the width of its feed-forward part
    biases   the layers that may have one
    rotated  llama.cpp turns pairs of neighbours, where transformers turns the first half of a head with the second: the
             rows of queries and keys are put in its order
    """

    name: str
    gate: str = "mlp.gate_proj"
    biases: tuple[str, ...] = ()
    rotated: bool = False

    def known(self, folder: Path, config: dict[str, Any], shapes: Shapes) -> Shapes:
        """The weights that the model has. Raises ModelError if they are not those of the configuration, or llama.cpp does
        not know some of them."""
        expected = _expected(config)
        missing = sorted(name for name, shape in expected.items() if shapes.get(name, ()) != shape)
        if config.get("tie_word_embeddings") and "lm_head.weight" not in shapes:
            missing = [name for name in missing if name != "lm_head.weight"]
        if missing:
            found = shapes.get(missing[0])
            raise ModelError(
                f"{folder}: the weights do not fit config.json: {missing[0]!r} should be {expected[missing[0]]} and is"
                f" {found or 'missing'}" + (f"; {len(missing) - 1} more do not fit" if len(missing) > 1 else "")
            )
        for name in shapes:
            if name.endswith(".bias") and name.split(".")[-2] not in self.biases:
                raise ModelError(f"{folder}: llama.cpp's {self.name} has no {name!r}: {CONVERTER}, if it knows it")
            if name not in expected and not name.endswith("rotary_emb.inv_freq"):
                raise ModelError(f"{folder}: tensor {name!r} belongs to no layer of the model that config.json describes")
        # Old folders hold frequencies, too, which llama.cpp computes.
        return {name: shape for name, shape in shapes.items() if name in expected}

    def add_parameters(self, writer: Any, config: dict[str, Any], shapes: Shapes) -> None:
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(shapes[f"model.layers.0.{self.gate}.weight"][0])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(self.key_value_heads(config))
        writer.add_rope_dimension_count(_head_size(config))
        writer.add_rope_freq_base(float(config["rope_parameters"]["rope_theta"]))
        writer.add_layer_norm_rms_eps(config["norm_eps"] if "norm_eps" in config else config["rms_norm_eps"])
        writer.add_vocab_size(config["vocab_size"])
        writer.add_key_length(_head_size(config))
        writer.add_value_length(_head_size(config))

    def key_value_heads(self, config: dict[str, Any]) -> Any:
        """Their number, or that of each layer."""
        return config["num_key_value_heads"]

    def names(self, layers: int) -> Any:
        """llama.cpp's names of the tensors."""
        kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
        return gguf.get_tensor_name_map(kinds[self.name], layers)

    def made(self, config: dict[str, Any]) -> Mapping[str, NDArray[np.float32]]:
        """Tensors that the folder has not: for Llama 3, what frequencies are divided by, [head size / 2]."""
        if config["rope_parameters"]["rope_type"] == "default":
            return {}
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](_config(config), "cpu")
        half = torch.arange(0, _head_size(config), 2) / _head_size(config)
        plain = float(config["rope_parameters"]["rope_theta"]) ** -half
        return {"rope_freqs.weight": (plain / scaled).float().numpy()}

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

    def add_parameters(self, writer: Any, config: dict[str, Any], shapes: Shapes) -> None:
        super().add_parameters(writer, config, shapes)
        writer.add_shortconv_l_cache(config["conv_L_cache"])

    def key_value_heads(self, config: dict[str, Any]) -> Any:
        kinds = config["layer_types"]
        return [config["num_key_value_heads"] if kind == "full_attention" else 0 for kind in kinds]

    def shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[0], shape[2]) if self._is_kernel(name) else shape

    def is_matrix(self, name: str, shape: tuple[int, ...]) -> bool:
        return len(shape) == 2 and not self._is_kernel(name)

    def values(self, name: str, tensor: NDArray[np.float32], config: dict[str, Any]) -> NDArray[np.float32]:
        return tensor.reshape(self.shape(name, tensor.shape))

    def _is_kernel(self, name: str) -> bool:
        return ".conv.conv." in name


_KNOWN = {
    "lfm2": Lfm2("lfm2", gate="feed_forward.w1"),
    "llama": Architecture("llama", biases=(*_ATTENTION, "o_proj", "gate_proj", "up_proj", "down_proj"), rotated=True),
    "mistral": Architecture("llama", rotated=True),
    "qwen2": Architecture("qwen2", biases=_ATTENTION),
    "qwen3": Architecture("qwen3"),
}


def open_config(folder: Path) -> tuple[Architecture, dict[str, Any]]:
    """The architecture of the model in `folder`, and its configuration. Raises ModelError if there is none, or if
    llama.cpp would compute something else."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: there is no such folder; a model of the Hugging Face Hub has to be downloaded first")
    kind = str(read_json(folder / "config.json").get("model_type"))
    if kind not in _KNOWN:
        raise ModelError(f"{folder}: models of type {kind!r} cannot be written, only {', '.join(_KNOWN)}; {CONVERTER}")
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True).to_dict()
    except Exception as error:  # transformers raises several unrelated classes for what is wrong with a file
        raise ModelError(f"{folder / 'config.json'}: not the configuration of a model: {error}") from None
    rope = config.get("rope_parameters") or {}
    positions = rope.get("rope_type", "default")
    for wrong, what in (
        (config.get("quantization_config"), "quantized weights"),
        (
            positions not in ("default", "llama3") or (positions == "llama3" and kind != "llama"),
            f"positions of type {positions!r}",
        ),
        (rope.get("partial_rotary_factor", 1.0) != 1.0, "positions in a part of each head"),
        (config.get("sliding_window"), f"a sliding window of {config.get('sliding_window')} tokens"),
        (config.get("hidden_act", "silu") != "silu", f"the activation {config.get('hidden_act')!r}"),
    ):
        if wrong:
            raise ModelError(f"{folder}: {what} cannot be written: {CONVERTER}")
    return _KNOWN[kind], config


def _expected(config: dict[str, Any]) -> Shapes:
    """The weights of the model that the configuration describes."""
    opener: Any = AutoModelForCausalLM
    with torch.device("meta"):
        model = opener.from_config(_config(config))
    return {name: tuple(value.shape) for name, value in model.state_dict().items()}


def _config(config: dict[str, Any]) -> Any:
    return AutoConfig.for_model(**config)


def _head_size(config: dict[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
