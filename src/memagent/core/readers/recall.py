"""Recalling an earlier memory (ReMemR1, arXiv 2509.23040): what was overwritten is not lost.

A reply may end with a line that begins with the profile's form `wanted` and names what it wants back. The best match among
the earlier memories of this reading (TF-IDF over words) is shown beside the memory in the next turn, also in the answer's.
The line itself is not part of the memory.

Earlier memories are part of the state, so that a reading stays a function of its completions. The journal does not store
them again with every turn; a resumed reading replays its completions. What is recalled is at most a memory's budget of
tokens, and chunks are that much smaller, so that every prompt fits the same window.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from memagent.core.budgets import template_tokens
from memagent.core.chunking import MIN_CHUNK_TOKENS, Cutter
from memagent.core.outcomes import Judgement
from memagent.core.readers.chunkwise import ChunkReader, ChunkState, memory_tokens
from memagent.core.readers.memory import MemoryReader
from memagent.core.reading import Plan, expect
from memagent.core.types import Completion
from memagent.errors import ConfigError

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallState(ChunkState):
    """Where a reading stands that can recall.

    earlier  all memories that differ from the one after them, in order
    wanted   what the last reply asked for: the best match among them is shown in the next turn
    """

    earlier: tuple[str, ...] = ()
    wanted: str = ""

    @property
    def recalled(self) -> str:
        """The memory that the next turn shows beside the present one, or "". Found when it is shown: replay needs none."""
        return best_match(self.earlier, self.wanted) if self.wanted else ""

    @property
    def settled(self) -> bool:
        return not self.earlier

    @classmethod
    def decoded(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**ChunkState.decoded(values), "earlier": tuple(values["earlier"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallReader(MemoryReader):
    """As `memory`; a reply may ask for one of the earlier memories."""

    name: ClassVar[str] = "recall"
    summary: ClassVar[str] = "As 'memory', but a reply may ask for an earlier memory, which the next turn shows."
    templates: ClassVar[tuple[str, ...]] = ("recall", "answer")
    states: ClassVar[type[ChunkState]] = RecallState

    def prepare(self, plan: Plan, window: int | None, overhead: int, cutter: Cutter) -> Plan:
        plan.profile.needs("recall", f"the reader {self.name!r}")
        recalled = memory_tokens(plan)
        room = plan.budgets.chunk - recalled
        if room < MIN_CHUNK_TOKENS:
            raise ConfigError(
                f"the chunk budget of {plan.budgets.chunk} tokens has no room for a recalled memory of"
                f" {recalled} and {MIN_CHUNK_TOKENS} tokens of text:"
                " lower the memory budget or raise the chunk budget"
            )
        check_answer(plan, window, overhead)
        smaller = replace(plan, budgets=replace(plan.budgets, chunk=room))
        prepared = super(RecallReader, self).prepare(smaller, None, overhead, cutter)
        return super(RecallReader, self).prepare(plan, window, overhead, lambda *_: prepared.chunks)

    def update_prompt(self, plan: Plan, state: ChunkState, text: str) -> str:
        empty = plan.profile.empty_memory
        return plan.prompt(
            "recall",
            memory=state.memory or empty,
            recalled=expect(state, RecallState).recalled or empty,
            chunk=text,
            memory_tokens=plan.budgets.memory,
        )

    def answer_prompt(self, plan: Plan, state: ChunkState) -> str:
        recalled = expect(state, RecallState).recalled
        both = "\n".join(part for part in (recalled, state.memory) if part)
        return super(RecallReader, self).answer_prompt(plan, replace(state, memory=both))

    def judged(self, plan: Plan, state: ChunkState, reply: str, completion: Completion) -> Judgement:
        memory, query = parted(reply, plan.profile.wanted)
        if query and not memory:
            return Judgement(outcome="unchanged")
        return ChunkReader.judged(self, plan, state, memory, completion)

    def updated(self, plan: Plan, before: ChunkState, after: ChunkState, reply: str) -> ChunkState:
        old, new = expect(before, RecallState), expect(after, RecallState)
        earlier = old.earlier
        if old.memory and old.memory != new.memory:
            earlier = (*earlier, old.memory)
        _, query = parted(reply, plan.profile.wanted)
        return replace(new, earlier=earlier, wanted=query)

    def shown(self, plan: Plan) -> int:
        return plan.tokens + self.planned(plan) * memory_tokens(plan)


def check_answer(plan: Plan, window: int | None, overhead: int) -> None:
    """Raises ConfigError if the answer's prompt has no room for two memories."""
    budgets = plan.budgets
    template = template_tokens(plan.profile, plan.tokenizer, overhead, ("answer",), question=budgets.question)
    template += plan.answer_note
    need = template + budgets.question + 2 * budgets.memory + budgets.answer_tokens
    if window is not None and need > window:
        raise ConfigError(
            f"the answer does not fit the window of {window} tokens: {template} wording + {budgets.question} question"
            f" + 2 × {budgets.memory} memory + {budgets.answer_tokens} answer = {need}; lower the answer budget"
        )


def parted(reply: str, form: str) -> tuple[str, str]:
    """The memory of a reply and what its last line wants to have back; "" if that line does not begin with the form."""
    memory, _, last = reply.rstrip().rpartition("\n")
    start = last.strip(" *_->`")
    if not form or not start.casefold().startswith(form.casefold()):
        return reply, ""
    return memory.strip(), start[len(form) :].strip(" :*_`")


def best_match(memories: Sequence[str], query: str) -> str:
    """The memory that is most like the query (cosine of TF-IDF over words); of equal ones the latest; "" if none is."""
    bags = [Counter(_WORD.findall(memory.lower())) for memory in memories]
    seen = Counter(word for bag in bags for word in bag)
    weight = {word: math.log(1 + len(bags) / count) for word, count in seen.items()}
    asked = {word: weight.get(word, 0.0) for word in _WORD.findall(query.lower())}

    def score(number: int) -> tuple[float, int]:
        bag = bags[number]
        norm = math.sqrt(sum((count * weight[word]) ** 2 for word, count in bag.items())) or 1.0
        return sum(bag[word] * weight[word] * asked[word] for word in asked if word in bag) / norm, number

    found = max(range(len(bags)), key=score, default=None)
    return memories[found] if found is not None and score(found)[0] > 0 else ""
