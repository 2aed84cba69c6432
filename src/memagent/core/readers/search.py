"""Search inside the document: what matches a query is read, and the memory decides what to look for next.

After InfMem (arXiv 2602.02704). The first query is the question itself. What matches best (BM25, through the plan's ranker)
among the chunks that were not read yet is read in document order, each chunk updating the memory as in the paper's reader.
Then the model sees question and memory and writes the next query, or says that the memory is enough; there are at most
`rounds` queries of at most `passages` chunks each.

A model that writes no queries (its profile has no template `query`) searches without being asked: the next query is made of
the words of the memory that were not searched for yet (`leads`). Where no chunk that was not read has such a word, the
answer is next.

How replies to a query turn are handled: only its first line counts, cut to the question budget. An empty reply is asked for
once more, and then the question is the query. A query that was asked before finds the next best chunks.

Search reads little of a document, so that it cannot count, list or compare over all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar

from memagent.core.chunking import Cutter
from memagent.core.outcomes import fit, reply_text, says
from memagent.core.readers.chunkwise import ChunkReader, ChunkState
from memagent.core.readers.leads import check_ranker, leads, ranked
from memagent.core.readers.memory import MemoryReader
from memagent.core.reading import Plan, State, expect
from memagent.core.types import Completion, Turn
from memagent.errors import ConfigError, ContextTooLongError


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchState(ChunkState):
    """Where a search stands.

    round  queries so far, that of the question included
    found  the numbers of the chunks to read, in the order in which they are read; `part` counts those that were
    ended  nothing more is searched for
    known  the words of the memory that were searched for, where the model writes no queries
    """

    round: int = 1
    found: tuple[int, ...] = ()
    ended: bool = False
    known: str = ""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SearchState:
        return super(SearchState, cls).from_json({"known": "", **values})  # older journals have none

    @classmethod
    def decoded(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**ChunkState.decoded(values), "found": tuple(values["found"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReader(MemoryReader):
    """Reads the chunks that match the question best, then those that match the model's own queries, or its memory."""

    name: ClassVar[str] = "search"
    summary: ClassVar[str] = "Reads the chunks that match the question, then those that match what was found (BM25)."
    grows: ClassVar[bool] = False
    ranks: ClassVar[bool] = True
    templates: ClassVar[tuple[str, ...]] = ("update", "query", "answer")
    states: ClassVar[type[ChunkState]] = SearchState

    rounds: int = 6
    passages: int = 4

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.passages < 1:
            raise ConfigError(f"{self.rounds} rounds of {self.passages} passages read nothing: give at least 1 of each")

    def prepare(self, plan: Plan, window: int | None, overhead: int, cutter: Cutter) -> Plan:
        check_ranker(plan, f"the reader {self.name!r}")
        return super(SearchReader, self).prepare(plan, window, overhead, cutter)

    def start(self, plan: Plan) -> SearchState:
        return SearchState(found=self._found(plan, SearchState(), plan.question))

    def parts(self, plan: Plan) -> int:
        return min(self.rounds * self.passages, len(plan.chunks))

    def part(self, plan: Plan, state: ChunkState) -> int | None:
        found = expect(state, SearchState).found
        return found[state.part] if state.part < len(found) else None

    def pending(self, plan: Plan, state: State) -> Iterator[str]:
        yield self._query_id(plan, state) or next(ChunkReader.pending(self, plan, state))

    def turn(self, plan: Plan, state: State, id: str) -> Turn:
        if id != self._query_id(plan, state):
            return ChunkReader.turn(self, plan, state, id)
        own, budget = expect(state, SearchState), plan.budgets.question
        prompt = plan.prompt("query", memory=own.memory or plan.profile.empty_memory)
        return Turn(
            id=id,
            kind="query",
            system=plan.profile.system,
            user=prompt + plan.note(own.again, budget),
            max_tokens=budget + plan.budgets.reasoning,
            sampling=plan.sampling,
        )

    def advance(self, plan: Plan, state: State, id: str, completion: Completion) -> ChunkState:
        if id != self._query_id(plan, state):
            return ChunkReader.advance(self, plan, state, id, completion)
        own = expect(state, SearchState)
        reply, reasons = reply_text(completion, plan.question + own.memory, own.reasons)
        own = replace(own, turns=own.turns + 1, reasons=reasons)
        if not reply and not own.again:
            return replace(own, tries=own.tries + 1, outcome="retry_empty")
        query = fit(reply.partition("\n")[0].strip(), plan.budgets.question, plan.tokenizer, whole_lines=False)
        if says(query, plan.profile.enough):
            return replace(own, ended=True, tries=0, outcome="enough")
        found = (*own.found, *self._found(plan, own, query or plan.question))
        return replace(own, round=own.round + 1, found=found, tries=0, outcome="searched")

    def updated(self, plan: Plan, before: ChunkState, after: ChunkState, reply: str) -> ChunkState:
        own = expect(after, SearchState)
        if plan.profile.query or own.round == self.rounds or not own.part == len(own.found) < len(plan.chunks):
            return own
        query, found = leads(plan, own.memory, own.known, self.passages, own.found)
        if not found:
            return own
        return replace(own, round=own.round + 1, found=(*own.found, *found), known=f"{own.known} {query}".strip())

    def split(self, plan: Plan, state: State, id: str) -> ChunkState:
        if id == self._query_id(plan, state):
            raise ContextTooLongError(
                "the server's window is too small for the question and the memory: use smaller budgets or a larger window"
            )
        return ChunkReader.split(self, plan, state, id)

    def planned(self, plan: Plan) -> int:
        queries = min(self.rounds, -(-len(plan.chunks) // self.passages)) - 1 if plan.profile.query else 0
        return self.parts(plan) + max(0, queries) + 1

    def shown(self, plan: Plan) -> int:
        return min(plan.tokens, self.rounds * self.passages * plan.budgets.chunk)

    def left(self, plan: Plan, state: State) -> int:
        own = expect(state, SearchState)
        if state.finished:
            return 0
        if own.ended or (self.part(plan, own) is None and self._query_id(plan, own) is None):
            return 1
        return max(1, self.planned(plan) - own.part - (own.round - 1 if plan.profile.query else 0))

    def _query_id(self, plan: Plan, state: State) -> str | None:
        """The id of the query turn, if one is pending."""
        own = expect(state, SearchState)
        asks = own.part == len(own.found) < len(plan.chunks) and own.round < self.rounds
        if state.finished or own.ended or not asks or not plan.profile.query:
            return None
        return f"query-{own.round + 1}" + (f"~{own.tries + 1}" if own.tries else "")

    def _found(self, plan: Plan, state: SearchState, query: str) -> tuple[int, ...]:
        """The chunks to read next: the best that were not read, in document order."""
        return tuple(sorted(islice(ranked(plan, query, state.found), self.passages)))
