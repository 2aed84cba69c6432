"""Reading again for what is missing (MemReread; iiGray/MemReread): the paper's reading, then a question of its own.

After the paper's reading the model sees question and memory and says whether they are enough, or writes one self-contained
question. The document is read again for that question, with a memory of its own, and what it found is merged into the
memory. This happens at most `rereads` times. The readings use the paper's prompts, so that any model that reads with
`memory` can do them.

How replies are handled, besides the rules for every reader: of the model's question only the first line counts, cut to the
question budget; an empty reply is asked for once more and then means that the memory is enough, and so does a question that
was asked before. The model sees the questions asked so far, the newest of them if not all fit beside the memory. A merge
without a usable reply keeps memory and findings one after the other, as far as they fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from memagent.core.chunking import Cutter
from memagent.core.outcomes import Outcome, fit, reply_text, says
from memagent.core.readers.append import newest
from memagent.core.readers.chunkwise import ANSWER, ChunkState
from memagent.core.readers.memory import MemoryReader
from memagent.core.readers.notes import merged_text
from memagent.core.reading import Plan, State, expect
from memagent.core.types import Completion, Turn, TurnKind
from memagent.errors import ConfigError, ContextTooLongError

_MEMORY = MemoryReader()


@dataclass(frozen=True, slots=True, kw_only=True)
class RereadState(State):
    """Where a reading stands that goes through a document several times.

    asked  the questions that the document was read again for, the last one under way or done
    inner  the reading of the document that is under way; None: between two of them
    tries  how often the turn between two readings was asked
    ended  the memory is enough: the answer is next
    """

    asked: tuple[str, ...] = ()
    inner: ChunkState | None = field(default_factory=ChunkState)
    tries: int = 0
    ended: bool = False

    def to_json(self) -> dict[str, Any]:
        return State.to_json(replace(self, inner=None)) | {"inner": self.inner and self.inner.to_json()}

    @classmethod
    def decoded(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        inner = values["inner"] and ChunkState.from_json(values["inner"])
        return {**values, "asked": tuple(values["asked"]), "inner": inner}


@dataclass(frozen=True, slots=True, kw_only=True)
class RereadReader:
    """As `memory`, and then again, at most `rereads` times, for a question that the model asks."""

    name: ClassVar[str] = "reread"
    summary: ClassVar[str] = "As 'memory', then again for what is missing: the model asks at most --rereads questions."
    grows: ClassVar[bool] = False
    ranks: ClassVar[bool] = False
    templates: ClassVar[tuple[str, ...]] = ("update", "judge", "merge", "answer")

    rereads: int = 2

    def __post_init__(self) -> None:
        if self.rereads < 0:
            raise ConfigError(f"a document cannot be read again {self.rereads} times: give 0 or more")

    def prepare(self, plan: Plan, window: int | None, overhead: int, cutter: Cutter) -> Plan:
        plan.profile.needs("judge", f"the reader {self.name!r}")
        plan.profile.needs("merge", f"the reader {self.name!r}")
        check_findings(plan)
        return _MEMORY.prepare(plan, window, overhead, cutter)

    def start(self, plan: Plan) -> RereadState:
        return RereadState() if len(plan.chunks) else RereadState(inner=None, ended=True)

    def load(self, values: Mapping[str, Any]) -> RereadState:
        return RereadState.from_json(values)

    def pending(self, plan: Plan, state: State) -> Iterator[str]:
        own = expect(state, RereadState)
        if self._reads(plan, own):
            assert own.inner is not None
            prefix = f"reread-{len(own.asked)}/" if own.asked else ""
            yield from (prefix + id for id in _MEMORY.pending(self._inner(plan, own), own.inner))
        else:
            kind = self._kind(plan, own)
            name = {"answer": ANSWER, "query": f"judge-{len(own.asked) + 1}", "merge": f"merge-{len(own.asked)}"}[kind]
            yield name + (f"~{own.tries + 1}" if own.tries else "")

    def turn(self, plan: Plan, state: State, id: str) -> Turn:
        own = self._checked(plan, state, id)
        if self._reads(plan, own):
            assert own.inner is not None
            made = _MEMORY.turn(self._inner(plan, own), own.inner, id.rpartition("/")[2])
            return replace(made, id=id, kind="note" if own.asked else made.kind)
        kind, budgets = self._kind(plan, own), plan.budgets
        budget = {"answer": budgets.answer, "query": budgets.question, "merge": budgets.memory}[kind]
        again = plan.note(own.tries % 2 == 1, budget, own.mistake)
        return Turn(
            id=id,
            kind=kind,
            system=plan.profile.system,
            user=self._prompt(plan, own) + again,
            max_tokens=budget + budgets.reasoning,
            sampling=plan.sampling,
            draft=own.memory if kind == "merge" and not again else "",
        )

    def advance(self, plan: Plan, state: State, id: str, completion: Completion) -> RereadState:
        own = self._checked(plan, state, id)
        if self._reads(plan, own):
            return self._read(plan, own, id.rpartition("/")[2], completion)
        reply, reasons = reply_text(completion, self._prompt(plan, own), own.reasons)
        own = replace(own, turns=own.turns + 1, reasons=reasons)
        kind = self._kind(plan, own)
        if kind == "query":
            return self._judged(plan, own, reply)
        do = self._merged if kind == "merge" else self._answered
        return do(plan, own, reply, completion)

    def split(self, plan: Plan, state: State, id: str) -> RereadState:
        own = self._checked(plan, state, id)
        if not self._reads(plan, own):
            raise ContextTooLongError(
                "the server's window is too small for the question and the memory: use smaller budgets or a larger window"
            )
        assert own.inner is not None
        inner = _MEMORY.split(self._inner(plan, own), own.inner, id.rpartition("/")[2])
        return replace(own, inner=inner, outcome="split")

    def reopen(self, plan: Plan, state: State) -> RereadState:
        own = expect(state, RereadState)
        return replace(own, tries=(own.tries // 2 + 1) * 2, answer=None)

    def planned(self, plan: Plan) -> int:
        return len(plan.chunks) + self.rereads * (len(plan.chunks) + 2) + 1

    def shown(self, plan: Plan) -> int:
        # Questions of the model take the place of the reader's; a merge shows one with what was found, a judge all so far.
        question, count = plan.budgets.question + 1, len(plan.chunks)
        judged = sum(min(asked * question, plan.budgets.chunk + plan.budgets.memory) for asked in range(self.rereads))
        again = count * question + plan.tokens + question + plan.budgets.memory
        return plan.tokens + self.rereads * again + judged

    def left(self, plan: Plan, state: State) -> int:
        own = expect(state, RereadState)
        if state.finished or own.ended:
            return 0 if state.finished else 1
        count, again = len(plan.chunks), len(own.asked)
        done = (own.inner.part if own.inner else count) + again * (count + 2)
        if again:  # the merge of the last one is still to come, or done
            done -= 1 if own.inner else 0
        return self.planned(plan) - done

    def _checked(self, plan: Plan, state: State, id: str) -> RereadState:
        own = expect(state, RereadState)
        if id != (expected := next(self.pending(plan, own))):
            raise ValueError(f"turn {id!r} is not pending: this reading is at turn {expected!r}")
        return own

    def _reads(self, plan: Plan, state: RereadState) -> bool:
        """Whether the document is being read."""
        return state.inner is not None and state.inner.part < len(plan.chunks)

    def _kind(self, plan: Plan, state: RereadState) -> TurnKind:
        """What comes between two readings of the document."""
        if state.inner is not None and state.asked:
            return "merge"
        return "answer" if state.ended or len(state.asked) >= self.rereads else "query"

    def _inner(self, plan: Plan, state: RereadState) -> Plan:
        """The plan of the reading under way: the same, for the question that was asked last."""
        if not state.asked:
            return replace(plan, reader=_MEMORY)
        return replace(plan, reader=_MEMORY, question=state.asked[-1], form=None)

    def _read(self, plan: Plan, state: RereadState, id: str, completion: Completion) -> RereadState:
        assert state.inner is not None
        inner = _MEMORY.advance(self._inner(plan, state), state.inner, id, completion)
        state = replace(state, turns=state.turns + 1, inner=inner, reasons=inner.reasons)
        over = inner.part >= len(plan.chunks)
        if state.asked:
            outcome: Outcome = "noted" if inner.outcome in ("kept", "fitted") else inner.outcome
            return replace(state, outcome=outcome, inner=None if over and not inner.memory else inner)
        read = replace(state, memory=inner.memory, outcome=inner.outcome, tokens_read=inner.tokens_read)
        return replace(read, inner=None) if over else read

    def _prompt(self, plan: Plan, state: RereadState) -> str:
        kind, memory = self._kind(plan, state), state.memory or plan.profile.empty_memory
        if kind == "merge":
            return plan.prompt("merge", memory=memory, notes=self._notes(state), memory_tokens=plan.budgets.memory)
        if kind == "answer":
            return plan.prompt("answer", memory=memory)
        room = plan.budgets.chunk + plan.budgets.memory - plan.budgets.question
        asked = newest("\n".join(state.asked), room, plan.tokenizer) or "-"
        return plan.prompt("judge", memory=memory, asked=asked)

    def _notes(self, state: RereadState) -> str:
        assert state.inner is not None
        return f"{state.asked[-1]}\n{state.inner.memory}"

    def _judged(self, plan: Plan, state: RereadState, reply: str) -> RereadState:
        if not reply and state.tries % 2 == 0:
            return replace(state, tries=state.tries + 1, outcome="retry_empty")
        question = fit(reply.partition("\n")[0].strip(), plan.budgets.question, plan.tokenizer, whole_lines=False)
        known = (plan.question, *state.asked)
        if not question or says(question, plan.profile.enough) or any(says(question, one) for one in known):
            return replace(state, tries=0, ended=True, outcome="enough")
        return replace(
            state, tries=0, asked=(*state.asked, question), inner=ChunkState(reasons=state.reasons), outcome="searched"
        )

    def _merged(self, plan: Plan, state: RereadState, reply: str, completion: Completion) -> RereadState:
        assert state.inner is not None
        judged = plan.judge(reply, completion, retried=state.tries % 2 == 1)
        if judged.retry:
            return replace(state, tries=state.tries + 1, outcome=judged.outcome)
        text = merged_text(plan, judged, state.memory, state.inner.memory)
        return replace(state, memory=text, inner=None, tries=0, outcome=judged.outcome)

    def _answered(self, plan: Plan, state: RereadState, reply: str, completion: Completion) -> RereadState:
        judged = plan.judge_answer(reply, completion, retried=state.tries % 2 == 1)
        state = replace(state, outcome=judged.outcome, mistake=judged.mistake)
        return replace(state, tries=state.tries + 1) if judged.retry else replace(state, answer=judged.text)


def check_findings(plan: Plan) -> None:
    """Raises ConfigError if the merge has no room, in place of a chunk, for a question and what was found for it."""
    budgets = plan.budgets
    if (need := budgets.question + budgets.memory) > budgets.chunk:
        raise ConfigError(
            f"the chunk budget of {budgets.chunk} tokens does not hold a question and a memory to merge:"
            f" {budgets.question} + {budgets.memory} = {need}: lower these budgets or raise the chunk budget"
        )
