"""Families of models, which extend the general engine.

A model folder names its family in `memagent.toml` (family = "embedded"). The family is one value: how replies are checked,
which draft tokens stand, how a loaded model is patched. A model without a family gets the general, exact engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from memagent.core.outcomes import MemoryCheck
from memagent.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

# Takes the logarithms [D] of how much less likely than the likeliest token each draft token is; gives those that stand.
Accept: TypeAlias = "Callable[[Tensor], Tensor]"

_FAMILIES = {"embedded": ("memagent.embedded.family", "EmbeddedFamily")}


class Acceptance(Protocol):
    """Lossy speculation: accepts tokens of a draft even if others are likelier."""

    def reply(self, draft: str) -> str:
        """The draft as the model writes it, white space included."""
        ...

    def acceptance(self, memory: str, spans: Iterable[tuple[int, int]], end: bool) -> Accept:
        """The rule for one draft: `spans` are its tokens' characters in the memory; `end`: a stop token follows them."""
        ...


class Family(Protocol):
    """A family of models. `digest` changes with anything that changes replies, and is part of the engine's identity."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str: ...

    @property
    def memory_check(self) -> MemoryCheck | None: ...

    @property
    def drafts(self) -> Acceptance | None: ...

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
