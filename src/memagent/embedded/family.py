"""The embedded model's family: what models trained like it need, handed to the engine as one value."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from typing import Any

from memagent.embedded.drafts import Drafts
from memagent.embedded.replies import FactLines


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedFamily:
    """Implements `memagent.models.families.Family`."""

    name: str = "embedded"
    memory_check: FactLines = field(default_factory=FactLines)
    drafts: Drafts = field(default_factory=Drafts)

    @property
    def digest(self) -> str:
        """Differs for settings that may give other greedy replies."""
        return hashlib.sha256(repr(asdict(self.drafts)).encode()).hexdigest()

    def prepare(self, model: Any) -> None:
        """Speeds up attention on a CPU for batches that are padded on the left."""
        from memagent.embedded.attention import use_row_attention

        use_row_attention(model)
