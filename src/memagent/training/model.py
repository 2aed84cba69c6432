"""Builds the embedded model, opens models to be trained, and writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, Lfm2Config, Lfm2ForCausalLM, PreTrainedModel

from memagent.errors import TrainingError
from memagent.models.local import quiet
from memagent.profiles import profile_paths
from memagent.training.checkpoints import writing_model
from memagent.training.config import ModelShape, SftConfig

# What goes with the weights as it is: the tokenizer's files, which another version of transformers might not read if this
# one wrote them anew, and how to read with the model.
BESIDE_WEIGHTS = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.model"),
    *("vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja", "chat_template.json", "memagent.toml"),
)

_CONSTANT = 0.5  # of every embedding's first coordinate, at the start


def build_model(shape: ModelShape, vocab_size: int, seed: int) -> Lfm2ForCausalLM:
    """A model with random weights drawn from `seed`. Special tokens have ids 0 (pad), 1 (begin) and 3 (end)."""
    config = Lfm2Config(
        vocab_size=vocab_size,
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        block_auto_adjust_ff_dim=False,
        num_hidden_layers=len(shape.layers),
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        layer_types=list(shape.layers),
        conv_L_cache=shape.conv,
        max_position_embeddings=shape.window,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=3,
        tie_word_embeddings=True,
        use_cache=True,
    )
    config.update({"conv_dim": shape.hidden, "block_dim": shape.hidden})  # vLLM reads these two, transformers does not
    model = Lfm2ForCausalLM(config)
    initialize(model, shape, torch.Generator().manual_seed(seed))
    return model


def new_model(config: SftConfig, folder: Path) -> Path:
    """Writes a model with random weights, its tokenizer and how it is to be read with; returns the folder.

    A folder that is there already is taken as it is: the run goes on. Raises OutputError.
    """
    assert config.model is not None
    assert config.tokenizer is not None
    if not (folder / "memagent.toml").is_file():
        with quiet():
            try:
                tokenizer: Any = AutoTokenizer.from_pretrained(config.tokenizer, local_files_only=True)
            except Exception as error:  # whatever is wrong with a folder, transformers raises its own kind of it
                why = str(error).splitlines()[0]
                raise TrainingError(f"tokenizer: none in {config.tokenizer} can be opened ({why})") from error
            with writing_model(folder, folder):
                folder.mkdir(parents=True, exist_ok=True)
                build_model(config.model, len(tokenizer), config.seed).save_pretrained(folder)
                tokenizer.save_pretrained(folder)
                (folder / "memagent.toml").write_text(settings_text(config), encoding="utf-8")
    return folder


def trained_as(profile: str, budgets: Mapping[str, int] | None = None) -> str:
    """The memagent.toml of a model that had none before it was trained with a profile, and budgets in tokens. A profile
    that is somebody's file is not named, since the folder may be read elsewhere."""
    named = f'profile = "{profile}"\n' if profile in profile_paths() else ""
    parts = "".join(f"{name} = {value}\n" for name, value in (budgets or {}).items())
    return "# How to read with this model: what it was trained on.\n" + named + (f"\n[budgets]\n{parts}" if parts else "")


def settings_text(config: SftConfig) -> str:
    """The memagent.toml of a new model: it reads as it was trained."""
    assert config.model is not None
    budgets = "".join(f"{name} = {value}\n" for name, value in config.budgets.model_dump().items())
    return (
        "# How to read with this model: what it was trained on.\n"
        f'profile = "{config.profile}"\nwindow = {config.model.window}\n'
        "# It was trained to update a memory and to answer from it, not to answer from a text.\n"
        f"direct = false\n\n[budgets]\n{budgets}"
    )


def load_model(folder: Path) -> PreTrainedModel:
    """A causal language model from a Hugging Face folder, in float32. Raises TrainingError that names the folder."""
    try:
        with quiet():
            model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
                folder, local_files_only=True, dtype=torch.float32
            )
    except Exception as error:  # whatever is wrong with a folder, transformers raises its own kind of it
        raise TrainingError(f"the model in {folder} cannot be opened: {error}") from error
    return model


def initialize(model: Lfm2ForCausalLM, shape: ModelShape, generator: torch.Generator) -> None:
    """Random weights, arranged so that copying is near.

    Attention begins as "look for what is alike, and copy it": queries and keys share one random projection, and values
    are put back by the transpose of theirs (mimetic initialization, arXiv 2305.09828). Convolutions begin with open gates,
    which takes a coordinate that is the same for all tokens: they then pass on what the previous tokens were, undistorted.
    """
    depth = math.sqrt(2 * len(shape.layers))
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "conv.conv" in name:
                value.uniform_(-(shape.conv**-0.5), shape.conv**-0.5, generator=generator)
            elif value.dim() == 2:
                scale = 1 / depth if name.endswith(("out_proj.weight", "w2.weight")) else 1.0
                value.normal_(0.0, scale / math.sqrt(value.shape[1]), generator=generator)
        model.model.embed_tokens.weight[:, 0] = _CONSTANT
        for layer in cast(Any, model.model.layers):
            if layer.is_attention_layer:
                attention = layer.self_attn
                for weight in (attention.q_proj.weight, attention.v_proj.weight):
                    nn.init.orthogonal_(weight, generator=generator)
                    weight[:, 0] = 0
                attention.k_proj.weight.copy_(attention.q_proj.weight)
                attention.out_proj.weight.copy_(attention.v_proj.weight.T)
            else:
                gates, values = layer.conv.in_proj.weight.split((2 * shape.hidden, shape.hidden))
                gates *= 0.3
                gates[:, 0] = 1 / (_CONSTANT * math.sqrt(shape.hidden / (1 + _CONSTANT**2)))
                values[:, 0] = 0
