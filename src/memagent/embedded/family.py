"""The embedded model's family: what models trained like it need, handed to the engine as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Replies that are no memory, as profiles have them. The model begins them with a space, unlike a memory.
_FORMS = ("nothing new",)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedFamily:
    """Implements `memagent.models.families.Family`."""

    name: str = "embedded"

    def written(self, draft: str) -> str:
        return f" {draft}" if draft in _FORMS else draft

    def prepare(self, model: Any) -> None:
        """Speeds up attention on a CPU for batches that are padded on the left."""
        from memagent.embedded.attention import use_row_attention

        use_row_attention(model)
