"""Families of models, which extend the general engine.

A model folder names its family in `memagent.toml` (family = "embedded"). The family is one value: how replies are written,
and how a loaded model is patched. A model without a family gets the general engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from memagent.errors import ConfigError

_FAMILIES = {"embedded": ("memagent.embedded.family", "EmbeddedFamily")}


class Family(Protocol):
    """A family of models. It changes nothing of what a model generates."""

    @property
    def name(self) -> str: ...

    def written(self, draft: str) -> str:
        """A guess at a reply as the model writes it, white space included."""
        ...

    def prepare(self, model: Any) -> None:
        """Patches a newly loaded transformers model."""
        ...


def open_family(name: str | None) -> Family | None:
    """The family of that name; None for None. Raises ConfigError for an unknown one."""
    if name is None:
        return None
    if name not in _FAMILIES:
        raise ConfigError(f"unknown model family {name!r}: use one of {', '.join(_FAMILIES)}, or omit it")
    module, attribute = _FAMILIES[name]
    family: Family = getattr(import_module(module), attribute)()
    return family
