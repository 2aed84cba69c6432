"""A cache of keys and values with room in it, and rows that can be exchanged.

The caches of transformers are copied whole with every token. This one is copied when its room is used up. It is for models
that take gaps (`memagent.models.kinds`): a row is whatever its mask shows of it, wherever it stands.

Shapes: B rows, H heads, T tokens, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

# Room for more tokens, as a share of those that there are, and the least.
_ROOM, _LEAST = 8, 32


class RoomyLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values [B, H, T, D] of one layer: the beginnings of buffers that are longer."""

    _buffers: tuple[torch.Tensor, ...] = ()

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        """Appends [B, H, W, D], and returns all there is."""
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffers = _buffer(key_states, end), _buffer(value_states, end)
        elif end > self._buffers[0].shape[2]:
            self.lay_out(len(key_states), 0, end)
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = states
        self._show(end)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Keeps rows, by their numbers, in this order."""
        self._buffers = tuple(buffer.index_select(0, beam_idx.to(buffer.device)) for buffer in self._buffers)
        self._show(self.get_seq_length())

    def lay_out(self, rows: int, cut: int, end: int | None = None) -> None:
        """Makes it `rows` rows, of which new ones are the last, without the first `cut` columns; with more columns before
        them if that is negative. There will be room up to column `end` and some more."""
        width = self.get_seq_length()
        end = width - cut if end is None else end
        made = []
        for states in self._buffers:
            buffer = _buffer(states[:1].expand(rows, -1, -1, -1), end)
            buffer[: len(states), :, max(0, -cut) : width - cut] = states[:, :, max(0, cut) : width]
            made.append(buffer)
        self._buffers = tuple(made)
        self._show(width - cut)

    def put(self, places: Sequence[int], other: RoomyLayer) -> None:
        """Replaces rows by those of another layer, as many of their columns as there are here: all end with the last."""
        width, came = self.get_seq_length(), other.get_seq_length()
        shown = min(width, came)
        for mine, theirs in zip(self._buffers, other._buffers, strict=True):
            mine[places, :, width - shown : width] = theirs[:, :, came - shown : came]

    def _show(self, end: int) -> None:
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)


class RoomyCache(Cache):
    """The layers of a model, as above."""

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=RoomyLayer)

    def lay_out(self, rows: int, cut: int) -> None:
        """As `RoomyLayer.lay_out`."""
        layers: list[Any] = self.layers
        for layer in layers:
            layer.lay_out(rows, cut)

    def put(self, places: Sequence[int], other: RoomyCache) -> None:
        """As `RoomyLayer.put`."""
        layers: list[Any] = self.layers
        for mine, theirs in zip(layers, other.layers, strict=True):
            mine.put(places, theirs)


def _buffer(states: torch.Tensor, tokens: int) -> torch.Tensor:
    """A buffer for so many tokens and some more, of the rows, heads and head size of [B, H, T, D]."""
    rows, heads, _, size = states.shape
    return states.new_zeros(rows, heads, tokens + max(_LEAST, tokens // _ROOM), size)
