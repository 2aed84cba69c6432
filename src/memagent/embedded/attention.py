"""Attention on a CPU for batches that are padded on the left.

For such a batch, the kernel of torch needs a mask of [B, T, T] and is slow. It is also slow for single queries. This module
computes row by row what is not padding. Scores are float32 whatever the weights are, as they are in the kernel of torch. On
processors that multiply bfloat16 matrices as tiles (AMX), that kernel is faster and computes each row without a mask.

Shapes: B rows, H heads, T tokens, D head size.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "memagent_rows"
# Queries at a time in the prefill, and rows at a time in decoding: what they need stays in the processor's cache.
_BLOCK = 128
_ROWS = 8
CAPABILITIES: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # of this processor
_TILES = bool(CAPABILITIES.get("amx_bf16"))
# Arguments of some models that change the result and are not supported here.
_UNUSUAL = ("position_bias", "cache", "softcap", "s_aux")


def use_row_attention(model: Any) -> None:
    """Switches a model from sdpa to this attention, if it is on a CPU and its attention can be chosen."""
    chosen = model.config._attn_implementation
    if model.device.type == "cpu" and chosen == "sdpa" and getattr(model, "_supports_attention_backend", False):
        model.set_attn_implementation(NAME)


def _mask(*args: Any, **kwargs: Any) -> Any:
    """The padding mask [B, T] itself if it is all that is asked for besides causality, else the mask sdpa would get."""
    mask, length, local = kwargs.get("attention_mask"), kwargs.get("q_length"), kwargs.get("local_size")
    plain = kwargs.get("allow_is_causal_skip", True) and not kwargs.get("allow_is_bidirectional_skip", False)
    if (
        plain
        and mask is not None
        and mask.device.type == "cpu"
        and length is not None
        and length > 1
        and mask.shape[1] == length == kwargs.get("kv_length")  # the whole prompt, and nothing before it
        and (local is None or length < local)
        and bool((mask[:, 1:] >= mask[:, :-1]).all() and mask[:, -1].all())  # padded on the left only
    ):
        return mask
    full: torch.Tensor | None = sdpa_mask(*args, **kwargs)
    return full


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """[B, H, T, D] → [B, T, H, D], with the arguments and the result of every attention function of transformers."""
    length = query.shape[2]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if _ours(query, dropout, kwargs):
        with torch.autocast("cpu", enabled=False):
            mine = _computed(query, key, value, attention_mask, scale, causal)
        if mine is not None:
            return mine, None
    if attention_mask is not None and attention_mask.ndim == 2:
        earlier = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
        attention_mask = attention_mask[:, None, None, :] & earlier
    return sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=is_causal, **kwargs
    )


def _computed(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    causal: bool,
) -> torch.Tensor | None:
    """What does not go to torch's kernel as it is, a whole prompt or one more token; None for anything else."""
    length = query.shape[2]
    seen = None if mask is None else (mask.dtype, mask.shape[:3])
    tiled = _TILES and query.dtype == torch.bfloat16
    if length == 1 and not tiled and seen in (None, (torch.bool, (len(query), 1, 1))):
        return _decode(query, key, value, mask, scale)
    if causal and length == key.shape[2] and (mask is None or mask.ndim == 2):
        starts = [0] * len(query) if mask is None else (~mask).sum(1).tolist()
        return (_prefill_tiled if tiled else _prefill)(query, key, value, starts, scale)
    return None


def _ours(query: torch.Tensor, dropout: float, kwargs: dict[str, Any]) -> bool:
    kind = query.device.type == "cpu" and query.dtype in (torch.float32, torch.bfloat16)
    return kind and not query.requires_grad and dropout == 0 and all(kwargs.get(name) is None for name in _UNUSUAL)


def _prefill(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, starts: list[int], scale: float) -> torch.Tensor:
    """Causal attention of each row from its start on, in blocks of queries. What it gives for padding is 0."""
    rows, heads, width, _ = query.shape
    groups = heads // key.shape[1]
    output = value.new_zeros(rows, width, heads, value.shape[-1])
    later = torch.ones(_BLOCK, _BLOCK, dtype=torch.bool).triu(1)
    for row, start in enumerate(starts):
        queries = query[row, :, start:].float() * scale
        keys = key[row, :, start:].float().repeat_interleave(groups, 0).transpose(1, 2)
        values = value[row, :, start:].repeat_interleave(groups, 0)
        for low in range(0, width - start, _BLOCK):
            high = min(low + _BLOCK, width - start)
            scores = queries[:, low:high] @ keys[:, :, :high]
            scores[:, :, low:].masked_fill_(later[: high - low, : high - low], float("-inf"))
            mixed = scores.softmax(-1).to(values.dtype) @ values[:, :high]
            output[row, start + low : start + high] = mixed.transpose(0, 1)
    return output


def _prefill_tiled(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, starts: list[int], scale: float
) -> torch.Tensor:
    """As `_prefill`, by torch's kernel: each row from its start on needs no mask."""
    rows, heads, width, _ = query.shape
    output = value.new_zeros(rows, width, heads, value.shape[-1])
    for row, start in enumerate(starts):
        part = (slice(row, row + 1), slice(None), slice(start, None))
        mixed = torch.nn.functional.scaled_dot_product_attention(
            query[part], key[part], value[part], is_causal=True, scale=scale, enable_gqa=heads != key.shape[1]
        )
        output[row, start:] = mixed[0].transpose(0, 1)
    return output


def _decode(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """Attention of one query per row over all its keys. `mask` is [B, 1, 1, T], True where a key is seen."""
    rows, heads, _, size = query.shape
    queries = (query.float() * scale).view(rows, key.shape[1], -1, size)  # the query heads of a key head, together
    parts = []
    for low in range(0, rows, _ROWS):
        part = slice(low, low + _ROWS)
        scores = queries[part] @ key[part].float().transpose(2, 3)
        if mask is not None:
            scores.masked_fill_(~mask[part], torch.finfo(torch.float32).min)
        parts.append(scores.softmax(-1) @ value[part].float())
    return torch.cat(parts).to(value.dtype).view(rows, 1, heads, -1)


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _mask)
