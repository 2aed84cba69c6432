"""A reader with many pending turns, for tests: in each of two rounds every chunk is noted at once, in any order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from memagent.core import Completion, Cutter, Plan, Span, State, Turn
from memagent.core.chunking import split
from memagent.errors import ContextTooLongError

ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundState(State):
    """`pieces` are what a round shows; `notes` the replies of the round under way, by the start of their piece."""

    round: int = 0
    pieces: tuple[Span, ...] = ()
    notes: tuple[tuple[int, str], ...] = ()

    @property
    def settled(self) -> bool:
        return not self.notes

    @classmethod
    def decoded(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        pieces = tuple(Span(start=start, end=end) for start, end in values["pieces"])
        return {**values, "pieces": pieces, "notes": tuple((start, note) for start, note in values["notes"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsReader:
    name: ClassVar[str] = "rounds"
    summary: ClassVar[str] = "For tests: all chunks at once, twice."
    templates: ClassVar[tuple[str, ...]] = ("update", "answer")

    def prepare(self, plan: Plan, window: int | None, overhead: int, cutter: Cutter) -> Plan:
        return replace(plan, chunks=cutter(plan.text, plan.tokenizer, plan.budgets.chunk))

    def start(self, plan: Plan) -> RoundState:
        return RoundState(pieces=tuple(one.span for one in plan.chunks))

    def load(self, values: Mapping[str, Any]) -> RoundState:
        return RoundState.from_json(values)

    def pending(self, plan: Plan, state: RoundState) -> Iterator[str]:
        if state.round == ROUNDS:
            yield "answer" + "~again" * (state.outcome == "retry_empty")
        else:
            noted = {start for start, _ in state.notes}
            yield from (f"round-{state.round}:{one.start}-{one.end}" for one in state.pieces if one.start not in noted)

    def turn(self, plan: Plan, state: RoundState, id: str) -> Turn:
        common = {"id": id, "sampling": plan.sampling, "max_tokens": plan.budgets.memory}
        if state.round == ROUNDS:
            return Turn(kind="answer", user=f"{plan.question} {state.memory}", **common)
        span = self._span(plan, state, id)
        text = plan.text.read(span.start, span.end)
        return Turn(kind="update", user=f"{plan.question} M {state.memory} C {text}", spans=(span,), **common)

    def advance(self, plan: Plan, state: RoundState, id: str, completion: Completion) -> RoundState:
        state = replace(state, turns=state.turns + 1)
        if state.round == ROUNDS:
            if not completion.text and state.outcome != "retry_empty":
                return replace(state, outcome="retry_empty")
            return replace(state, answer=completion.text, outcome="answered", tokens_read=plan.tokens)
        span = self._span(plan, state, id)
        notes = tuple(sorted([*state.notes, (span.start, completion.text)]))
        if len(notes) < len(state.pieces):
            return replace(state, notes=notes, outcome="kept")
        memory = " ".join(note for _, note in notes if note)[: plan.budgets.memory]
        return replace(state, notes=(), memory=memory, round=state.round + 1, outcome="kept")

    def split(self, plan: Plan, state: RoundState, id: str) -> RoundState:
        if state.round == ROUNDS or (halves := split(plan.text, self._span(plan, state, id))) is None:
            raise ContextTooLongError("too small a window")
        pieces = (*(one for one in state.pieces if one.start != halves[0].start), *halves)
        return replace(state, pieces=tuple(sorted(pieces, key=lambda one: one.start)))

    def reopen(self, plan: Plan, state: RoundState) -> RoundState:
        return replace(state, answer=None)

    def planned(self, plan: Plan) -> int:
        return ROUNDS * len(plan.chunks) + 1

    def shown(self, plan: Plan) -> int:
        return ROUNDS * plan.tokens

    def left(self, plan: Plan, state: RoundState) -> int:
        rounds = ROUNDS - state.round
        return 0 if state.finished else rounds * len(state.pieces) - len(state.notes) + 1

    def _span(self, plan: Plan, state: RoundState, id: str) -> Span:
        for one in state.pieces:
            if id == f"round-{state.round}:{one.start}-{one.end}":
                return one
        raise ValueError(f"turn {id!r} is not pending")
