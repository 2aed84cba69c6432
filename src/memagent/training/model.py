"""Builds the embedded model and runs it where there is a loss.

Shapes: N rows, T tokens, R reply steps, W = context + R, D hidden, H heads, E head size, V vocabulary.

`reply_hidden` gives what the stock model's forward gives at the reply's tokens, and skips what they do not depend on:
behind the last attention layer only the reply and the few tokens before it that the remaining convolutions reach are
computed. With prompts of 800 tokens and replies of 15 that saves a third of all the work.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer, Lfm2Config, Lfm2ForCausalLM, PreTrainedModel

from memagent.errors import TrainingError
from memagent.models.local import quiet
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
            tokenizer: Any = AutoTokenizer.from_pretrained(config.tokenizer, local_files_only=True)
            with writing_model(folder, folder):
                folder.mkdir(parents=True, exist_ok=True)
                build_model(config.model, len(tokenizer), config.seed).save_pretrained(folder)
                tokenizer.save_pretrained(folder)
                (folder / "memagent.toml").write_text(settings_text(config), encoding="utf-8")
    return folder


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


def reach(model: Lfm2ForCausalLM) -> int | None:
    """How many tokens before a reply `reply_hidden` needs; None if it cannot compute the model."""
    kinds = list(model.config.layer_types or ())
    if "full_attention" not in kinds or getattr(model.config, "conv_bias", False):
        return None
    last = max(i for i, kind in enumerate(kinds) if kind == "full_attention")
    return int((model.config.conv_L_cache - 1) * (len(kinds) - 1 - last))


def reply_hidden(model: Lfm2ForCausalLM, ids_NT: Tensor, at_NR: Tensor) -> Tensor:
    """Hidden states hidden_NRD at consecutive positions that begin at at_NR[:, 0]. Rows are padded on the right.

    Prompts are no shorter than `reach`.
    """
    body: Any = model.model
    kinds = list(model.config.layer_types or ())
    last = max(i for i, kind in enumerate(kinds) if kind == "full_attention")
    context = reach(model) or 0
    tokens = ids_NT.shape[1]
    steps = torch.arange(-context, at_NR.shape[1], device=ids_NT.device)
    window_NW = (at_NR[:, :1] + steps).clamp(0, tokens - 1)
    x_NTD = body.embed_tokens(ids_NT)
    rotary = body.rotary_emb(x_NTD, torch.arange(tokens, device=ids_NT.device)[None])
    for i, layer in enumerate(body.layers):
        normed = _norm(layer.operator_norm, x_NTD)
        if i == last:
            x_NTD = x_NTD.gather(1, window_NW[..., None].expand(-1, -1, x_NTD.shape[2]))
            x_NTD = x_NTD + _attention(layer.self_attn, normed, rotary, window_NW)
        elif kinds[i] == "full_attention":
            x_NTD = x_NTD + _attention(layer.self_attn, normed, rotary, None)
        else:
            x_NTD = x_NTD + _short_convolution(layer.conv, normed)
        x_NTD = x_NTD + layer.feed_forward(_norm(layer.ffn_norm, x_NTD))
    return _norm(body.embedding_norm, x_NTD[:, context:])


def _norm(norm: Any, x: Tensor) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), norm.weight, norm.variance_epsilon)


def _attention(module: Any, x_NTD: Tensor, rotary: tuple[Tensor, Tensor], window_NW: Tensor | None) -> Tensor:
    """Causal attention for all positions, or only for the queries at window_NW."""
    cos, sin = rotary
    k = module.k_proj(x_NTD).unflatten(-1, (-1, module.head_dim))
    v = module.v_proj(x_NTD).unflatten(-1, (-1, module.head_dim)).transpose(1, 2)
    k = _norm(module.k_layernorm, k.float()).transpose(1, 2)
    mask, cos_q, sin_q = None, cos, sin
    if window_NW is not None:
        x_NTD = x_NTD.gather(1, window_NW[..., None].expand(-1, -1, x_NTD.shape[2]))
        mask = (torch.arange(k.shape[2], device=k.device) <= window_NW[..., None])[:, None]
        cos_q, sin_q = cos[0][window_NW], sin[0][window_NW]
    q = _norm(module.q_layernorm, module.q_proj(x_NTD).unflatten(-1, (-1, module.head_dim)).float()).transpose(1, 2)
    q, k = _rotate(q, cos_q, sin_q), _rotate(k, cos, sin)
    grouped = q.shape[1] != k.shape[1]
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=grouped)
    return module.out_proj(out.transpose(1, 2).flatten(2))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of x (N, H, T, E) with cos and sin (N or 1, T, E)."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos[:, None] + turned * sin[:, None]


def _short_convolution(module: Any, x_NTD: Tensor) -> Tensor:
    """The gated causal convolution, as shifted products: many times faster than a grouped conv1d on several threads."""
    gate_in, gate_out, value = module.in_proj(x_NTD).chunk(3, dim=-1)
    value = gate_in * value
    kernel = module.conv.weight[:, 0].to(value.dtype)
    size = kernel.shape[1]
    padded = functional.pad(value, (0, 0, size - 1, 0))
    tokens = value.shape[1]
    mixed = value * kernel[:, -1]
    for shift in range(size - 1):
        mixed = mixed + padded[:, shift : shift + tokens] * kernel[:, shift]
    return module.out_proj(gate_out * mixed)
