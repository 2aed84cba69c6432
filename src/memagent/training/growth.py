"""Makes a trained model deeper without changing what it computes, so that training can go on with more layers.

Some layers are copied, and the copies write nothing into the residual stream at first: their output projections are zero
(block expansion, LLaMA Pro, arXiv 2401.02415).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from memagent.errors import ConfigError, TrainingError
from memagent.models.local import quiet
from memagent.training.export import export_model
from memagent.training.model import load_model

_LAYER = re.compile(r"(?P<before>.*\blayers\.)(?P<number>\d+)(?P<name>\..*)")
# Where a layer writes into the residual stream: attention or convolution, and feed-forward. Llama's and Lfm2's names.
_OUTPUTS = re.compile(
    r"\.(self_attn\.o_proj|self_attn\.out_proj|conv\.out_proj|mlp\.down_proj|feed_forward\.w2)\.(weight|bias)"
)


def write_deeper(start: Path, stack: Sequence[int], folder: Path) -> None:
    """Writes the model of `start` with the layers of `stack`, numbers of its layers: one that comes again is a copy.

    Raises ConfigError for a stack that does not have every layer in order, TrainingError for a model whose layers are not
    known, and OutputError.
    """
    export_model(grow(load_model(start), stack), start, folder, "float32")


def grow(model: PreTrainedModel, stack: Sequence[int]) -> PreTrainedModel:
    """A model with the layers of `stack` that computes the same. Raises ConfigError and TrainingError, as above."""
    with quiet():
        deeper: PreTrainedModel = AutoModelForCausalLM.from_config(grown(model.config, stack), dtype=torch.float32)
    deeper.load_state_dict(_weights(model, deeper, stack))
    _check(model, deeper)
    return deeper


def grown(config: Any, stack: Sequence[int]) -> Any:
    """The configuration of a model with the layers of `stack`. Raises ConfigError, as above."""
    count = config.num_hidden_layers
    if list(dict.fromkeys(stack)) != list(range(count)):
        raise ConfigError(
            f"stack = {list(stack)} must name each of the {count} layers, from 0, for the first time in order"
        )
    deeper = copy.deepcopy(config)
    for name, value in config.to_dict().items():
        if "layer" in name and isinstance(value, list) and len(value) == count:  # one entry for each: layer_types
            setattr(deeper, name, [value[layer] for layer in stack])
    deeper.num_hidden_layers = len(stack)
    return deeper


def _weights(model: PreTrainedModel, deeper: PreTrainedModel, stack: Sequence[int]) -> dict[str, torch.Tensor]:
    known: dict[str, torch.Tensor] = model.state_dict()
    copies = {place for place, layer in enumerate(stack) if layer in stack[:place]}
    weights = {}
    for name in deeper.state_dict():
        match = _LAYER.fullmatch(name)
        if match is None and name not in known:
            raise TrainingError(f"a {type(model).__name__} cannot be made deeper: its layers are not known by {name!r}")
        if match is None:
            weights[name] = known[name]
            continue
        place = int(match["number"])
        value = known[f"{match['before']}{stack[place]}{match['name']}"]
        weights[name] = torch.zeros_like(value) if place in copies and _OUTPUTS.fullmatch(match["name"]) else value
    return weights


@torch.no_grad()
def _check(model: Any, deeper: Any) -> None:
    ids = torch.arange(1, 65).remainder(model.config.vocab_size)[None]
    apart = (model(input_ids=ids).logits - deeper(input_ids=ids).logits).abs().max().item()
    if not apart < 1e-4:
        raise TrainingError(
            f"a {type(model).__name__} cannot be made deeper: with copies of its layers that should have no effect, its"
            f" logits differ by {apart:.2g}"
        )
