"""The baseline that takes notes: every reply is added to the memory. When it is full, its oldest lines go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memagent.core.outcomes import fit
from memagent.core.readers.chunkwise import ChunkReader, ChunkState
from memagent.core.reading import Plan
from memagent.core.types import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendReader(ChunkReader):
    """Chunk by chunk; each reply is appended to the memory.

    It shows the profile's `note` template. A profile without one shows `update` with an empty memory, so that a model that
    rewrites memories writes only what the chunk adds.
    """

    name: ClassVar[str] = "append"
    summary: ClassVar[str] = "Reads chunk by chunk and adds notes to the memory; the oldest lines go when it is full."

    def update_prompt(self, plan: Plan, state: ChunkState, text: str) -> str:
        profile = plan.profile
        return plan.prompt(
            "note" if profile.note else "update",
            memory=(state.memory if profile.note else "") or profile.empty_memory,
            chunk=text,
            memory_tokens=plan.budgets.memory,
        )

    def draft(self, plan: Plan, state: ChunkState) -> str:
        return ""

    def written(self, plan: Plan, memory: str, reply: str) -> tuple[str, bool]:
        notes = appended(memory, reply)
        kept = newest(notes, plan.budgets.memory, plan.tokenizer)
        return kept, kept != notes


def appended(memory: str, reply: str) -> str:
    """The memory followed by the lines of a reply; a line that stands there already is not repeated."""
    lines = memory.splitlines()
    return "\n".join([*lines, *(line for line in dict.fromkeys(reply.splitlines()) if line.strip() and line not in lines)])


def newest(memory: str, budget: int, tokenizer: Tokenizer) -> str:
    """The last whole lines of a memory that fit `budget` tokens; if not even one does, what fits of the last."""
    lines = memory.splitlines()
    kept: list[str] = []
    while lines and tokenizer.count("\n".join([lines[-1], *kept])) <= budget:
        kept.insert(0, lines.pop())
    return "\n".join(kept) or fit(lines[-1] if lines else "", budget, tokenizer, whole_lines=False)
