"""Settings of torch's native libraries, which read them when torch is imported."""

from __future__ import annotations

import os

DEFAULTS = {
    # Threads that spin at a barrier while the other core is taken away make two threads slower than one.
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
    # oneDNN keeps a compiled kernel for each of the last 1,024 shapes: at a new prompt length every turn that is a leak of
    # 2 MB a turn in bfloat16. Sixteen are as fast (docs/results/speed-and-memory.md).
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16",
    "LRU_CACHE_CAPACITY": "16",
}


def configure() -> None:
    """Sets variables that the user's environment does not set. Call it before torch is imported."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
