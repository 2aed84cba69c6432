"""What has to be in the environment before verl is imported, here and in every process it starts."""

from __future__ import annotations

import os

from memagent.models import native

_CPU = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "memagent.cluster.cpu",
    "VERL_LOGGING_LEVEL": "WARNING",
    # Activations of megabytes come and go with every layer: freed memory is kept, instead of mapped anew each time.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
    "MALLOC_TOP_PAD_": str(1 << 28),
    **native.DEFAULTS,
}


def environment(device: str) -> dict[str, str]:
    """The variables of a run on "cuda" or "cpu"."""
    return dict(_CPU) if device == "cpu" else {}


def prepare(device: str) -> None:
    """Sets in this process what is not set."""
    for name, value in environment(device).items():
        os.environ.setdefault(name, value)
