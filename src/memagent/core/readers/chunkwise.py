"""What readers share that show the document part by part and answer at the end.

A part is a planned chunk, or an excerpt that stands for the whole document. There is one pending turn at a time: its prompt
depends on the memory that the turn before it left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

from memagent.core import chunking
from memagent.core.budgets import check_budgets, template_tokens
from memagent.core.chunking import Cutter
from memagent.core.outcomes import Judgement, reply_text
from memagent.core.reading import Plan, State, expect
from memagent.core.types import Completion, Span, Text, Turn
from memagent.errors import ConfigError, ContextTooLongError

# Stands between the parts of an excerpt that are not neighbours in the document.
GAP = "\n[…]\n"
ANSWER = "answer"
UPDATE = ("update", "note", "answer")
# Templates whose replies are questions or queries.
QUERIES = ("query", "judge")
OPTIONAL = ("note", "query")  # templates that a profile may leave empty: the reader then does without

Spans: TypeAlias = tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkState(State):
    """Where a reading stands that goes part by part.

    part    index of the part that is being read
    rest    what is left of that part, in pieces of one or more spans; empty: all of it
    limit   most characters that are shown at once; set after a prompt did not fit the window
    refused how many parts had to be halved
    halved  index of the last of them
    since   how many parts were read since then, or since the limit grew
    tries   how often the current turn was asked: an odd number after a reply that was empty or too long
    """

    part: int = 0
    rest: tuple[Spans, ...] = ()
    limit: int | None = None
    refused: int = 0
    halved: int = -1
    since: int = 0
    tries: int = 0

    @property
    def again(self) -> bool:
        """Whether the current turn repeats the one before, which failed."""
        return self.tries % 2 == 1

    @classmethod
    def decoded(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        rest = tuple(tuple(Span(start=start, end=end) for start, end in piece) for piece in values["rest"])
        return {**values, "rest": rest}


class ChunkReader(ABC):
    """A reader that goes part by part. A subclass says what an update shows and what its reply does to the memory."""

    name: ClassVar[str]
    summary: ClassVar[str]
    grows: ClassVar[bool] = True
    ranks: ClassVar[bool] = False
    # The templates of the profile that its turns show.
    templates: ClassVar[tuple[str, ...]] = UPDATE
    # The kind of its states.
    states: ClassVar[type[ChunkState]] = ChunkState

    @abstractmethod
    def update_prompt(self, plan: Plan, state: ChunkState, text: str) -> str:
        """The prompt of a memory update. The memory of the state is "" before the first."""

    @abstractmethod
    def written(self, plan: Plan, memory: str, reply: str) -> tuple[str, bool]:
        """The memory after a reply that was accepted, and whether older lines had to go to make room for it."""

    def updated(self, plan: Plan, before: ChunkState, after: ChunkState, reply: str) -> ChunkState:
        """The state after an update that is not asked again. Readers whose states hold more than a memory extend it."""
        return after

    def draft(self, plan: Plan, state: ChunkState) -> str:
        """A good guess at the reply to an update: where it replaces the memory, the memory."""
        return state.memory

    def parts(self, plan: Plan) -> int:
        """How many parts are read into the memory, at most."""
        return len(plan.chunks)

    def part(self, plan: Plan, state: ChunkState) -> int | None:
        """The number of the part that is being read; None: the answer is next."""
        return state.part if state.part < self.parts(plan) else None

    def judged(self, plan: Plan, state: ChunkState, reply: str, completion: Completion) -> Judgement:
        """What the reply to a memory update came to."""
        return plan.judge(reply, completion, retried=state.again)

    def answer_prompt(self, plan: Plan, state: ChunkState) -> str:
        """The prompt of the answer."""
        return plan.prompt("answer", memory=state.memory or plan.profile.empty_memory)

    def answer_spans(self, plan: Plan) -> Spans:
        """The characters of the document that the answer's prompt shows."""
        return ()

    def prepare(self, plan: Plan, window: int | None, overhead: int, cutter: Cutter) -> Plan:
        check_window(plan, window, overhead)
        return replace(plan, chunks=cutter(plan.text, plan.tokenizer, plan.budgets.chunk))

    def start(self, plan: Plan) -> ChunkState:
        return self.states()

    def load(self, values: Mapping[str, Any]) -> ChunkState:
        return self.states.from_json(values)

    def pending(self, plan: Plan, state: State) -> Iterator[str]:
        yield self._id(plan, expect(state, ChunkState))

    def turn(self, plan: Plan, state: State, id: str) -> Turn:
        state = self._checked(plan, state, id)
        pieces = self._pieces(plan, state)
        budget = plan.budgets.memory if pieces else plan.budgets.answer
        shown = read(plan.text, pieces[0]) if pieces else ""
        prompt = self.update_prompt(plan, state, shown) if pieces else self.answer_prompt(plan, state)
        return Turn(
            id=id,
            kind="update" if pieces else "answer",
            system=plan.profile.system,
            user=prompt + plan.note(state.again, budget, state.mistake),
            max_tokens=budget + plan.budgets.reasoning,
            sampling=plan.sampling,
            spans=pieces[0] if pieces else self.answer_spans(plan),
            draft=self.draft(plan, state) if pieces and not state.again else "",
            tokens=self._tokens(plan, state),
        )

    def advance(self, plan: Plan, state: State, id: str, completion: Completion) -> ChunkState:
        state = self._checked(plan, state, id)
        pieces = self._pieces(plan, state)
        shown = read(plan.text, pieces[0]) if pieces else ""
        reply, reasons = reply_text(completion, plan.question + state.memory + shown, state.reasons)
        state = replace(state, turns=state.turns + 1, reasons=reasons)
        return self._update(plan, state, reply, completion) if pieces else self._answer(plan, state, reply, completion)

    def split(self, plan: Plan, state: State, id: str) -> ChunkState:
        state = self._checked(plan, state, id)
        pieces = self._pieces(plan, state)
        halves = halve(plan.text, pieces[0]) if pieces else None
        if halves is None:
            whole = "the whole document" if plan.excerpt is None else "the excerpt of the document"
            shown = whole if self.answer_spans(plan) else "the question and the memory"
            raise ContextTooLongError(
                f"the server's window is too small for {'one character' if pieces else shown}:"
                " use smaller budgets or a larger window"
            )
        return replace(
            state,
            rest=(*halves, *pieces[1:]),
            limit=max(size(half) for half in halves),
            refused=state.refused + (state.halved != state.part),
            halved=state.part,
            since=0,
            tries=0,
            outcome="split",
        )

    def reopen(self, plan: Plan, state: State) -> ChunkState:
        own = expect(state, ChunkState)
        return replace(own, tries=(own.tries // 2 + 1) * 2, answer=None)

    def planned(self, plan: Plan) -> int:
        return self.parts(plan) + 1

    def shown(self, plan: Plan) -> int:
        return plan.tokens

    def left(self, plan: Plan, state: State) -> int:
        return 0 if state.finished else self.planned(plan) - expect(state, ChunkState).part

    def _tokens(self, plan: Plan, state: ChunkState) -> int:
        """The tokens of an update that shows a whole chunk: those of the chunk were counted when it was cut."""
        part = self.part(plan, state)
        if part is None or state.again or self._pieces(plan, state)[0] != plan.shown(part):
            return 0
        # In pieces that were counted before: a tokenizer that asks a server remembers those.
        count = plan.tokenizer.count
        memory = count(state.memory) - count(plan.profile.empty_memory) if state.memory else 0
        return count(self.update_prompt(plan, replace(state, memory=""), "")) + memory + plan.chunks[part].tokens

    def _checked(self, plan: Plan, state: State, id: str) -> ChunkState:
        own = expect(state, ChunkState)
        if id != (expected := self._id(plan, own)):
            raise ValueError(f"turn {id!r} is not pending: this reading is at turn {expected!r}")
        return own

    def _id(self, plan: Plan, state: ChunkState) -> str:
        again = f"~{state.tries + 1}" if state.tries else ""
        if (part := self.part(plan, state)) is None:
            return ANSWER + again
        piece = self._pieces(plan, state)[0]
        return f"chunk-{part + 1}" + ("" if piece == plan.shown(part) else f":{piece[0].start}-{piece[-1].end}") + again

    def _pieces(self, plan: Plan, state: ChunkState) -> tuple[Spans, ...]:
        """What is left of the current part; its first piece is no longer than the limit. None: the answer is next."""
        if (part := self.part(plan, state)) is None:
            return ()
        pieces = list(state.rest) or [plan.shown(part)]
        while state.limit is not None and size(pieces[0]) > state.limit:
            halves = halve(plan.text, pieces[0])
            if halves is None:
                break
            pieces[:1] = halves
        return tuple(pieces)

    def _update(self, plan: Plan, state: ChunkState, reply: str, completion: Completion) -> ChunkState:
        judged = self.judged(plan, state, reply, completion)
        if judged.retry:
            return replace(state, tries=state.tries + 1, outcome=judged.outcome)
        memory, outcome = state.memory, judged.outcome
        if judged.text is not None:
            memory, full = self.written(plan, state.memory, judged.text)
            outcome = "full" if full else outcome
        part, rest = self.part(plan, state), self._pieces(plan, state)[1:]
        assert part is not None
        read_on = self.parts(plan) if outcome == "enough" else state.part + 1
        after = replace(
            state if rest else _eased(state, size(plan.shown(part))),
            part=state.part if rest and outcome != "enough" else read_on,
            rest=() if outcome == "enough" else rest,
            tokens_read=state.tokens_read + (0 if rest else plan.chunks[part].tokens),
            memory=memory,
            tries=0,
            outcome=outcome,
        )
        return self.updated(plan, state, after, reply)

    def _answer(self, plan: Plan, state: ChunkState, reply: str, completion: Completion) -> ChunkState:
        judged = plan.judge_answer(reply, completion, retried=state.again)
        state = replace(state, outcome=judged.outcome, mistake=judged.mistake)
        if judged.retry:
            return replace(state, tries=state.tries + 1)
        tokens = plan.tokens if self.answer_spans(plan) else state.tokens_read
        return replace(state, tokens_read=tokens, answer=judged.text)


def _eased(state: ChunkState, whole: int) -> ChunkState:
    """The state after a part of `whole` characters: more is shown at once where the text was dense only in places.

    The limit doubles after 2, 4, 8 … parts that were read, twice as many for each part that had to be halved. So a window
    that is too small for every chunk refuses a few prompts, and not one of each chunk.
    """
    if state.limit is None:
        return state
    if state.since + 1 < 2**state.refused:
        return replace(state, since=state.since + 1)
    return replace(state, limit=None if 2 * state.limit >= whole else 2 * state.limit, since=0)


def check_window(plan: Plan, window: int | None, overhead: int) -> None:
    """Raises ConfigError if the longest turn of a reading with a memory would not fit the window."""
    template = template_tokens(
        plan.profile, plan.tokenizer, overhead, plan.reader.templates, question=plan.budgets.question
    )
    template += memory_tokens(plan) - plan.budgets.memory
    check_budgets(plan.budgets, template, window, plan.answer_note)
    if not any(name in QUERIES and getattr(plan.profile, name) for name in plan.reader.templates) or window is None:
        return
    budgets = plan.budgets
    if (need := template + 2 * budgets.question + budgets.memory + budgets.reasoning) > window:
        raise ConfigError(
            f"a query does not fit the window of {window} tokens: {template} wording + {budgets.question} question"
            f" + {budgets.memory} memory + {budgets.question + budgets.reasoning} query = {need}; lower the question budget"
        )


def memory_tokens(plan: Plan) -> int:
    """Most tokens of what a prompt shows as the memory: the text that stands for an empty one may be longer."""
    return max(plan.budgets.memory, plan.tokenizer.count(plan.profile.empty_memory))


def read(text: Text, spans: Spans) -> str:
    """The characters of the spans, with a mark between those that are not neighbours."""
    return GAP.join(text.read(span.start, span.end) for span in spans)


def size(spans: Spans) -> int:
    """Characters in the spans."""
    return sum(map(len, spans))


def halve(text: Text, spans: Spans) -> tuple[Spans, Spans] | None:
    """The spans in two halves, which joined are the spans; None if they are a single character."""
    if len(spans) > 1:
        return spans[: len(spans) // 2], spans[len(spans) // 2 :]
    halves = chunking.split(text, spans[0])
    return None if halves is None else ((halves[0],), (halves[1],))
