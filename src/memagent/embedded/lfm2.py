"""The forward pass of LFM2 where only the ends of rows count: replies that are scored or generated, checks of drafts.

What the ends do not depend on is skipped: of the last attention layer all but keys and values, and everything behind it,
but for the few tokens that the remaining convolutions reach. With the embedded model, prompts of 800 tokens and replies of
15 that saves a third of all the work.

Shapes: N rows, T tokens, R reply steps, W = context + R, D hidden, H heads, E head size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import Cache, Lfm2ForCausalLM
from transformers.masking_utils import create_causal_mask


def reach(model: Any) -> int | None:
    """How many tokens before a reply have to be computed whole; None for a model that is not supported."""
    if not isinstance(model, Lfm2ForCausalLM):
        return None
    kinds = list(model.config.layer_types or ())
    if "full_attention" not in kinds or getattr(model.config, "conv_bias", False):
        return None
    return int((model.config.conv_L_cache - 1) * (len(kinds) - 1 - _last_attention(model)))


def prefill(model: Lfm2ForCausalLM, ids_NT: Tensor, mask_NT: Tensor | None, position_NT: Tensor, cache: Cache) -> Tensor:
    """Logits [N, V] after prompts that are padded on the left. Fills the empty cache, with which the stock model goes on.

    No prompt is as short as `reach`. `mask_NT` is 1 at tokens and 0 at padding; None: there is no padding.
    """
    body: Any = model.model
    last, tail = _last_attention(model), 1 + (reach(model) or 0)
    x_NTD = body.embed_tokens(ids_NT)
    cos, sin = rotary = body.rotary_emb(x_NTD, position_ids=position_NT)
    causal = create_causal_mask(
        config=model.config, inputs_embeds=x_NTD, attention_mask=mask_NT, past_key_values=cache, position_ids=position_NT
    )
    for layer in body.layers[:last]:
        seen = causal if layer.is_attention_layer else mask_NT
        x_NTD = layer(
            x_NTD, attention_mask=seen, position_embeddings=rotary, position_ids=position_NT, past_key_values=cache
        )
    layer = body.layers[last]
    normed = _norm(layer.operator_norm, x_NTD)
    k, v = _keys_and_values(layer.self_attn, normed, rotary)
    cache.update(k, v, last)
    tokens = ids_NT.shape[1]
    earlier = torch.ones(tail, tokens, dtype=torch.bool, device=ids_NT.device).tril(tokens - tail)[None, None]
    mask = earlier if mask_NT is None else earlier & mask_NT[:, None, None].bool()
    q = _queries(layer.self_attn, normed[:, -tail:], (cos[:, -tail:], sin[:, -tail:]))
    x_NTD = x_NTD[:, -tail:] + _attend(layer.self_attn, q, k, v, mask)
    x_NTD = x_NTD + layer.feed_forward(layer.ffn_norm(x_NTD))
    for layer in body.layers[last + 1 :]:  # convolutions: they begin in the middle, and only what is right is looked at
        x_NTD = layer(x_NTD, past_key_values=cache)
    logits: Tensor = model.lm_head(body.embedding_norm(x_NTD[:, -1]))
    return logits


def reply_hidden(model: Lfm2ForCausalLM, ids_NT: Tensor, at_NR: Tensor) -> Tensor:
    """Hidden states hidden_NRD, as the stock model gives them, at consecutive positions that begin at at_NR[:, 0].

    Rows are padded on the right. No first position is before `reach`; what is beyond a row's end is of no use.
    """
    body: Any = model.model
    last = _last_attention(model)
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
        elif layer.is_attention_layer:
            x_NTD = x_NTD + _attention(layer.self_attn, normed, rotary, None)
        else:
            x_NTD = x_NTD + _short_convolution(layer.conv, normed)
        x_NTD = x_NTD + layer.feed_forward(_norm(layer.ffn_norm, x_NTD))
    return _norm(body.embedding_norm, x_NTD[:, context:])


def _last_attention(model: Lfm2ForCausalLM) -> int:
    return max(i for i, kind in enumerate(model.config.layer_types or ()) if kind == "full_attention")


def _norm(norm: Any, x: Tensor) -> Tensor:
    # Under autocast projections are bfloat16 and weights float32, as are the sums of a norm.
    return functional.rms_norm(x.to(norm.weight.dtype), (x.shape[-1],), norm.weight, norm.variance_epsilon)


def _attention(module: Any, x_NTD: Tensor, rotary: tuple[Tensor, Tensor], window_NW: Tensor | None) -> Tensor:
    """Causal attention for all positions, or only for the queries at window_NW."""
    k, v = _keys_and_values(module, x_NTD, rotary)
    if window_NW is None:
        return _attend(module, _queries(module, x_NTD, rotary), k, v, None)
    x_NWD = x_NTD.gather(1, window_NW[..., None].expand(-1, -1, x_NTD.shape[2]))
    q = _queries(module, x_NWD, (rotary[0][0][window_NW], rotary[1][0][window_NW]))
    mask = (torch.arange(k.shape[2], device=k.device) <= window_NW[..., None])[:, None]
    return _attend(module, q, k, v, mask)


def _queries(module: Any, x_NTD: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    q = _norm(module.q_layernorm, module.q_proj(x_NTD).unflatten(-1, (-1, module.head_dim)))
    return _rotate(q.transpose(1, 2), *rotary)


def _keys_and_values(module: Any, x_NTD: Tensor, rotary: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    k = _norm(module.k_layernorm, module.k_proj(x_NTD).unflatten(-1, (-1, module.head_dim)))
    v = module.v_proj(x_NTD).unflatten(-1, (-1, module.head_dim))
    return _rotate(k.transpose(1, 2), *rotary), v.transpose(1, 2)


def _attend(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """What an attention layer adds, from queries, keys and values (N, H, T, E); without a mask: causal."""
    grouped = q.shape[1] != k.shape[1]
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=grouped)
    projected: Tensor = module.out_proj(out.transpose(1, 2).flatten(2))
    return projected


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
    projected: Tensor = module.out_proj(gate_out * mixed)
    return projected
