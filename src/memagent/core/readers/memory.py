"""The paper's reader: every reply replaces the memory (arXiv 2507.02259, §3.1).

The memory of turn k is generated from (question, memory of turn k−1, chunk k) and replaces it; the answer is generated from
(question, last memory) alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memagent.core.readers.chunkwise import ChunkReader, ChunkState
from memagent.core.reading import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReader(ChunkReader):
    """Chunk by chunk; each reply replaces the memory."""

    name: ClassVar[str] = "memory"
    summary: ClassVar[str] = "Reads chunk by chunk and rewrites the memory after each one (the paper's reader)."

    def update_prompt(self, plan: Plan, state: ChunkState, text: str) -> str:
        return plan.prompt(
            "update",
            memory=state.memory or plan.profile.empty_memory,
            chunk=text,
            memory_tokens=plan.budgets.memory,
        )

    def written(self, plan: Plan, memory: str, reply: str) -> tuple[str, bool]:
        return reply, False
