"""Settings of the native libraries that torch uses. Most of them are read when torch is imported."""

from __future__ import annotations

import ctypes
import os
import sys

DEFAULTS = {
    # Threads that spin at a barrier while the other core is taken away make two threads slower than one.
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
    # oneDNN keeps a compiled kernel for each of the last 1,024 shapes: at a new prompt length every turn that is a leak of
    # 2 MB a turn in bfloat16. Sixteen are as fast (docs/results/speed-and-memory.md).
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16",
    "LRU_CACHE_CAPACITY": "16",
}
# What glibc's malloc keeps, in bytes, by the numbers of malloc.h for its parameters: freed memory at the end of the heap
# (M_TRIM_THRESHOLD), and pieces up to this size in the heap at all (M_MMAP_THRESHOLD, at most 32 MB). By default, much of
# what a pass frees goes back to the kernel, and the next pass pays a page fault for each four kilobytes that it takes
# (docs/results/speed-and-memory.md).
_KEPT = {-1: 1 << 30, -3: 1 << 25}


def configure() -> None:
    """Sets variables that the user's environment does not set, and keeps freed memory. Call it before torch is imported."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    if sys.platform == "linux" and not any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda *given: 0)  # other C libraries may have none
        for parameter, size in _KEPT.items():
            mallopt(parameter, size)
