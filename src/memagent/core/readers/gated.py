"""The paper's reader with gates: a chunk that brings nothing costs a few tokens, and a reading may end early.

The update gate follows GRU-Mem (arXiv 2602.10560): the model decides in the reply itself whether the memory changes. Here
it says so with a fixed short form (`nothing` of the profile) instead of writing the whole memory again. The exit gate
(`exit`, off by default) lets it end the reading with another form (`enough`), alone or as the last line of a memory. It
pays only where the evidence comes early, and is not offered for questions that need the whole document.

A reply that is neither form is a memory, and is handled as one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from memagent.core.chunking import Cutter
from memagent.core.outcomes import Judgement, says
from memagent.core.readers.chunkwise import ChunkReader, ChunkState
from memagent.core.readers.memory import MemoryReader
from memagent.core.reading import Plan
from memagent.core.types import Completion

# Questions (English) that one more chunk may always change the answer to.
_WHOLE = re.compile(
    r"\b(all|every|each|any other|how (many|much|often)|count|list|total|most|least|last|latest)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedReader(MemoryReader):
    """As `memory`; the model may reply that a chunk adds nothing and, with `exit`, that it has read enough."""

    name: ClassVar[str] = "gated"
    summary: ClassVar[str] = (
        "As 'memory', but a chunk that adds nothing is skipped with a short reply; --exit may end early."
    )
    templates: ClassVar[tuple[str, ...]] = ("gated", "answer")

    exit: bool = False

    def prepare(self, plan: Plan, window: int | None, overhead: int, cutter: Cutter) -> Plan:
        plan.profile.needs("gated", f"the reader {self.name!r}")
        if self.exit:
            plan.profile.needs("exit", f"the reader {self.name!r} with exit")
        return super(GatedReader, self).prepare(plan, window, overhead, cutter)

    def update_prompt(self, plan: Plan, state: ChunkState, text: str) -> str:
        profile = plan.profile
        return plan.prompt(
            "gated",
            memory=state.memory or profile.empty_memory,
            chunk=text,
            memory_tokens=plan.budgets.memory,
            exit=profile.render("exit") if self.may_exit(plan) else "",
        )

    def draft(self, plan: Plan, state: ChunkState) -> str:
        return plan.profile.nothing

    def may_exit(self, plan: Plan) -> bool:
        """Whether the reading may end before the document does."""
        return self.exit and not needs_whole(plan.question)

    def judged(self, plan: Plan, state: ChunkState, reply: str, completion: Completion) -> Judgement:
        if says(reply, plan.profile.nothing):
            return Judgement(outcome="skipped")
        if self.may_exit(plan):
            memory, _, last = reply.rpartition("\n")
            if says(last, plan.profile.enough):
                return self._enough(plan, state, memory.strip(), completion)
        return ChunkReader.judged(self, plan, state, reply, completion)

    def _enough(self, plan: Plan, state: ChunkState, memory: str, completion: Completion) -> Judgement:
        """The end of the reading, with a memory before the form or the old one; without any, the form is not accepted."""
        if not memory or says(memory, plan.profile.nothing):
            return Judgement(outcome="enough" if state.memory else "skipped")
        judged = ChunkReader.judged(self, plan, state, memory, completion)
        ends = not judged.retry and bool(judged.text or state.memory)
        return Judgement(outcome="enough", text=judged.text) if ends else judged


def needs_whole(question: str) -> bool:
    """Whether a question asks for a count, a list, or what comes last (English)."""
    return _WHOLE.search(question) is not None
