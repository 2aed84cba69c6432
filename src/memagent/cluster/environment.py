"""What has to be in the environment before verl is imported, here and in every process it starts."""

from __future__ import annotations

import os

CPU = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "memagent.cluster.cpu",
    "OMP_WAIT_POLICY": "PASSIVE",  # barriers that spin take the other process's core
    "GOMP_SPINCOUNT": "0",
}


def environment(device: str) -> dict[str, str]:
    """The variables of a run on "cuda" or "cpu"."""
    return dict(CPU) if device == "cpu" else {}


def prepare(device: str) -> None:
    """Sets them in this process."""
    os.environ.update(environment(device))
