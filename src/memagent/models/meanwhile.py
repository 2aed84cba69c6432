"""Computes a value while something else is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Meanwhile(Generic[T]):
    """`value` is computed once: some seconds after `with` begins, if the event loop has nothing else to do by then, or when
    it is first asked for; not at all if `with` ends before."""

    def __init__(self, compute: Callable[[], T], *, after: float) -> None:
        self._compute = compute
        self._after = after

    @cached_property
    def value(self) -> T:
        return self._compute()

    def __enter__(self) -> Meanwhile[T]:
        self._timer = asyncio.get_running_loop().call_later(self._after, lambda: self.value)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self._timer.cancel()
