"""Answers from a memory that another reading left: one turn, and nothing of the document is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from memagent.core.chunking import Chunks, Cutter
from memagent.core.readers.chunkwise import ChunkState, check_window
from memagent.core.readers.memory import MemoryReader
from memagent.core.reading import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReader(MemoryReader):
    """`memory` is what the reading with the id `reading` ended with."""

    name: ClassVar[str] = "kept"
    summary: ClassVar[str] = "Answers from the memory of an earlier reading."
    grows: ClassVar[bool] = False
    templates: ClassVar[tuple[str, ...]] = ("answer",)

    reading: str = ""
    memory: str = ""

    def prepare(self, plan: Plan, window: int | None, overhead: int, cutter: Cutter) -> Plan:
        check_window(plan, window, overhead)
        return replace(plan, chunks=Chunks())

    def start(self, plan: Plan) -> ChunkState:
        return ChunkState(memory=self.memory)
