"""All suites by name."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from memagent.errors import ConfigError
from memagent.tasks.suites import (
    babilong,
    graphwalks,
    infinitebench,
    kv_retrieval,
    locomo,
    longbench,
    longmemeval,
    mrcr,
    nolima,
    oolong,
    qmsum,
    ruler,
)
from memagent.tasks.suites.suite import Suite

_MODULES = (
    babilong, graphwalks, infinitebench, kv_retrieval, locomo, longbench, longmemeval, mrcr, nolima, oolong, qmsum, ruler,
)  # fmt: skip
SUITES: MappingProxyType[str, Suite[Any]] = MappingProxyType({module.SUITE.name: module.SUITE for module in _MODULES})


def find_suite(name: str) -> Suite[Any]:
    """Raises ConfigError that names those there are."""
    if name not in SUITES:
        raise ConfigError(f"no format {name!r}; there are {', '.join(SUITES)}: `memagent import --list` describes them")
    return SUITES[name]


def described() -> list[dict[str, Any]]:
    """All suites, for a listing."""
    return [
        {
            "format": suite.name,
            "suite": suite.title,
            "file": suite.file,
            "scorer": suite.scorer,
            "official": suite.official,
            "subsets": list(suite.subsets),
        }
        for suite in SUITES.values()
    ]
