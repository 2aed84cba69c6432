"""Caches whose rows can be exchanged, for models that take rows (`memagent.models.kinds`).

A row is whatever its mask shows of it. All rows end in the last column; what stands before a shorter one does not matter.
The caches of transformers are copied whole with every token; what full attention keeps has room here for more.

Shapes: B rows, H heads, T tokens, D head size, C channels, L width of a convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer

from memagent.models.kinds import takes_rows

# Room for more tokens, as a share of those that there are, and the least.
_ROOM, _LEAST = 8, 32


def new_cache(config: Any) -> RowCache | None:
    """An empty cache for a model; None if it takes no rows."""
    return RowCache(config) if takes_rows(config) else None


class RowCache(Cache):
    """A layer for each of a model: those below."""

    def __init__(self, config: Any) -> None:
        super().__init__(layers=[_layer(one) for one in DynamicCache(config=config).layers])

    def lay_out(self, rows: int, cut: int) -> None:
        """Makes it `rows` rows, of which new ones are the last, without the first `cut` columns; with more columns before
        them if that is negative."""
        layers: list[Any] = self.layers
        for layer in layers:
            layer.lay_out(rows, cut)

    def put(self, places: Sequence[int], other: RowCache) -> None:
        """Replaces rows by those of another cache, as many of their columns as there are here: all end with the last."""
        layers: list[Any] = self.layers
        for mine, theirs in zip(layers, other.layers, strict=True):
            mine.put(places, theirs)


def _layer(usual: Any) -> Any:
    """The layer that does here what this one does."""
    if isinstance(usual, LinearAttentionLayer):
        return ConvolutionLayer()
    full: Any = FullLayer
    return WindowLayer(usual.sliding_window) if usual.is_sliding else full()


class ConvolutionLayer(LinearAttentionLayer):
    """The last inputs [B, C, L] of one short convolution: of each row its own, however many columns there are."""

    def lay_out(self, rows: int, cut: int) -> None:
        inputs = self._inputs
        made = inputs.new_zeros(rows, *inputs.shape[1:])
        made[: len(inputs)] = inputs
        if isinstance(self.conv_states, dict):
            self.conv_states[0] = made
        else:
            self.conv_states = made

    def put(self, places: Sequence[int], other: ConvolutionLayer) -> None:
        self._inputs[places] = other._inputs

    @property
    def _inputs(self) -> torch.Tensor:
        # A layer may have several states in newer versions of transformers (5.23, not 5.9); that of LFM2 has one.
        inputs: Any = self.conv_states[0] if isinstance(self.conv_states, dict) else self.conv_states
        assert isinstance(inputs, torch.Tensor)  # there was a prompt
        return inputs


class WindowLayer(DynamicSlidingWindowLayer):  # type: ignore[no-untyped-call]
    """Keys and values [B, H, W, D] of one layer that sees the last places: no more columns than those."""

    def __init__(self, window: int) -> None:
        super().__init__(sliding_window=window)

    def lay_out(self, rows: int, cut: int) -> None:
        self.cumulative_length -= cut
        width = min(self.cumulative_length, self.sliding_window - 1)
        self.keys, self.values = (_moved(states, rows, width) for states in _both(self))

    def put(self, places: Sequence[int], other: WindowLayer) -> None:
        for mine, theirs in zip(_both(self), _both(other), strict=True):
            _put(mine, places, theirs)


class FullLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values [B, H, T, D] of one layer that sees all places: the beginnings of buffers that are longer."""

    _buffers: tuple[torch.Tensor, ...] = ()

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        """Appends [B, H, W, D], and returns all there is."""
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffers = tuple(_moved(states, len(states), end, _room(end)) for states in (key_states, value_states))
        else:
            if end > self._buffers[0].shape[2]:
                self._make(len(key_states), start, end)
            for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
                buffer[:, :, start:end] = states
        self._show(end)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Keeps rows, by their numbers, in this order."""
        self._buffers = tuple(buffer.index_select(0, beam_idx.to(buffer.device)) for buffer in self._buffers)
        self._show(self.get_seq_length())

    def lay_out(self, rows: int, cut: int) -> None:
        width = self.get_seq_length() - cut
        self._make(rows, width, width)
        self._show(width)

    def put(self, places: Sequence[int], other: FullLayer) -> None:
        for mine, theirs in zip(_both(self), _both(other), strict=True):
            _put(mine, places, theirs)

    def _make(self, rows: int, width: int, end: int) -> None:
        """New buffers with so many rows and columns, and room for columns up to `end` and more."""
        self._buffers = tuple(_moved(states, rows, width, end - width + _room(end)) for states in _both(self))

    def _show(self, end: int) -> None:
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)


def _both(layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return layer.keys, layer.values


def _room(tokens: int) -> int:
    return max(_LEAST, tokens // _ROOM)


def _moved(states: torch.Tensor, rows: int, width: int, room: int = 0) -> torch.Tensor:
    """The last `width` columns of [B, H, T, D], with zeros before them if there are fewer, more rows after them, and `room`
    more columns."""
    shown = min(width, states.shape[2])
    made = states.new_zeros(rows, states.shape[1], width + room, states.shape[3])
    made[: len(states), :, width - shown : width] = states[:, :, states.shape[2] - shown :]
    return made


def _put(mine: torch.Tensor, places: Sequence[int], theirs: torch.Tensor) -> None:
    """Replaces rows by others, as far as these have columns for it, from the last one on."""
    shown = min(mine.shape[2], theirs.shape[2])
    mine[places, :, mine.shape[2] - shown :] = theirs[:, :, theirs.shape[2] - shown :]
