"""An exact forward pass that computes only the ends of rows, for architectures that support it.

After the last attention layer, a prompt's tokens matter only as far as the layers behind it reach back. What does not reach
the end is not computed (docs/results/speed-and-memory.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Architecture (`model_type` of transformers) → module with `reach`, `prefill` and `reply_hidden`.
_ARCHITECTURES = {"lfm2": "memagent.embedded.lfm2"}


def reach(model: Any) -> int | None:
    """The number of tokens before a reply that must be computed in full; None for the whole row."""
    module = _module(model)
    return None if module is None else module.reach(model)


def prefill(model: Any, ids_NT: Any, mask_NT: Any, position_NT: Any, cache: Any) -> Any:
    """Logits [N, V] after prompts that are padded on the left. The cache is filled, and the stock model goes on with it."""
    return _module(model).prefill(model, ids_NT, mask_NT, position_NT, cache)


def reply_hidden(model: Any, ids_NT: Any, at_NR: Any) -> Any:
    """Hidden states [N, R, D] at consecutive positions that begin at at_NR[:, 0]. Rows are padded on the right."""
    return _module(model).reply_hidden(model, ids_NT, at_NR)


def _module(model: Any) -> Any:
    name = _ARCHITECTURES.get(getattr(model.config, "model_type", ""))
    return None if name is None else import_module(name)
