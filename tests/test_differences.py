"""Settings that have changed, named for people."""

from __future__ import annotations

from memagent.differences import change, flat


def test_a_change_names_both_values_also_those_that_are_nothing() -> None:
    old, new = flat("a", {"b": {"c": 0}, "d": {}, "e": "x" * 80}), flat("a", {"b": {"c": 1}, "d": {"f": None}})
    assert change("a.b.c", old, new) == "a.b.c: 0 → 1"
    assert change("a.d", old, new) == "a.d: {} → (not set)"
    assert change("a.d.f", old, new) == "a.d.f: (not set) → null"
    assert change("a.e", old, new).startswith('a.e: "xxx')
    assert "(82 characters) → (not set)" in change("a.e", old, new)
