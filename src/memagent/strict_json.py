"""JSON as its standard has it: what Python alone can read, or cannot write again, is refused.

Python's own module takes NaN and Infinity, makes infinity of 1e999, and has no words for a number of many digits.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any, NoReturn


def decoder() -> json.JSONDecoder:
    """A decoder that raises ValueError, in plain words, for numbers that are none in JSON or that nothing can hold."""
    return json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite, parse_int=_whole)


def loads(text: str) -> Any:
    """The value of a text. Raises ValueError; RecursionError if it is nested too deeply."""
    return decoder().decode(text)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _whole(text: str) -> int:
    most = sys.get_int_max_str_digits()
    if most and len(text.removeprefix("-")) > most:
        raise ValueError(f"a number of {len(text.removeprefix('-')):,} digits is too large")
    return int(text)
