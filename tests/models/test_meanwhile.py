"""A value that is computed while something else is waited for."""

from __future__ import annotations

import asyncio

from memagent.models.meanwhile import Meanwhile


def counted(wait: float, asks: int, after: float) -> tuple[int, list[int]]:
    """How often it was computed by the end of a wait, and what was then asked for."""
    calls: list[None] = []

    async def body() -> tuple[int, list[int]]:
        with Meanwhile(lambda: calls.append(None) or len(calls), after=after) as later:
            await asyncio.sleep(wait)
            before = len(calls)
            found = [later.value for _ in range(asks)]
        await asyncio.sleep(0.05)
        return before, found

    before, found = asyncio.run(body())
    assert len(calls) == max(before, len(set(found)))
    return before, found


def test_it_is_there_by_the_time_it_is_asked_for() -> None:
    assert counted(wait=0.05, asks=2, after=0.0) == (1, [1, 1])


def test_it_is_computed_when_it_is_asked_for_before() -> None:
    assert counted(wait=0.0, asks=2, after=60.0) == (0, [1, 1])


def test_it_is_not_computed_for_nothing() -> None:
    assert counted(wait=0.0, asks=0, after=0.01) == (0, [])
