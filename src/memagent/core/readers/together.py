"""Several questions in one reading: any reader, with one memory for all of them and an answer for each.

The reader is asked a list of questions (the profile's template `together`, which wants a section of the memory for each)
and reads the document once. Then each question is answered on its own, from the memory or the text that the reader ended
with; these turns do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar

from memagent.core.budgets import Budgets
from memagent.core.chunking import Cutter
from memagent.core.prompts import Profile
from memagent.core.readers.chunkwise import ANSWER
from memagent.core.reading import Plan, Reader, State, expect
from memagent.core.types import Completion, Tokenizer, Turn
from memagent.errors import ConfigError

# Tokens of memory below which a section holds no fact.
SECTION_TOKENS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TogetherState(State):
    """Where a reading for several questions stands: `inner` until the document is read, then a state for each question."""

    inner: State
    each: tuple[State, ...] = ()

    @property
    def settled(self) -> bool:
        return self.inner.settled

    @property
    def answers(self) -> tuple[str | None, ...]:
        """The answers, in the order of the questions; None: not answered yet."""
        return tuple(state.answer for state in self.each)

    def to_json(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in _SHARED}
        return own | {"answer": self.answer, "inner": self.inner.to_json(), "each": [one.to_json() for one in self.each]}


@dataclass(frozen=True, slots=True, kw_only=True)
class TogetherReader:
    """Reads as `reader` does, once for all `questions`."""

    name: ClassVar[str] = "together"
    summary: ClassVar[str] = "Reads once for several questions, with a section of the memory for each."
    grows: ClassVar[bool] = True  # where `reader` does
    ranks: ClassVar[bool] = False

    reader: Reader
    questions: tuple[str, ...]
    reads_as: str = ""  # the reader's name, so that it is part of the plan's digest

    @property
    def templates(self) -> tuple[str, ...]:
        return self.reader.templates

    def prepare(self, plan: Plan, window: int | None, overhead: int, cutter: Cutter) -> Plan:
        prepared = self.reader.prepare(replace(plan, reader=self.reader), window, overhead, cutter)
        return replace(prepared, reader=self)

    def start(self, plan: Plan) -> TogetherState:
        inner = self.reader.start(self._plan(plan))
        return self._with(plan, TogetherState(inner=inner), inner)

    def load(self, values: Mapping[str, Any]) -> TogetherState:
        inner, each = self.reader.load(values["inner"]), tuple(self.reader.load(one) for one in values["each"])
        return TogetherState(**{**values, "inner": inner, "each": each})

    def pending(self, plan: Plan, state: State) -> Iterator[str]:
        own = expect(state, TogetherState)
        if not own.each:
            yield from self.reader.pending(self._plan(plan), own.inner)
        for number, one in enumerate(own.each):
            if one.answer is None:
                yield from (f"question-{number + 1}/{id}" for id in self.reader.pending(self._plan(plan, number), one))

    def turn(self, plan: Plan, state: State, id: str) -> Turn:
        own = expect(state, TogetherState)
        if not own.each:
            return self.reader.turn(self._plan(plan), own.inner, id)
        number, rest = self._which(own, id)
        return replace(self.reader.turn(self._plan(plan, number), own.each[number], rest), id=id)

    def advance(self, plan: Plan, state: State, id: str, completion: Completion) -> TogetherState:
        own = expect(state, TogetherState)
        if not own.each:
            inner = self.reader.advance(self._plan(plan), own.inner, id, completion)
            return self._with(plan, replace(own, turns=own.turns + 1), inner)
        number, rest = self._which(own, id)
        one = self.reader.advance(self._plan(plan, number), own.each[number], rest, completion)
        each = (*own.each[:number], one, *own.each[number + 1 :])
        answers = [state.answer for state in each]
        answer = None if None in answers else numbered([text or "" for text in answers]) if all(answers) else ""
        read = replace(own, turns=own.turns + 1, tokens_read=one.tokens_read, outcome=one.outcome)
        return replace(read, each=each, answer=answer)

    def split(self, plan: Plan, state: State, id: str) -> TogetherState:
        own = expect(state, TogetherState)
        if not own.each:
            return self._with(plan, own, self.reader.split(self._plan(plan), own.inner, id))
        number, rest = self._which(own, id)
        one = self.reader.split(self._plan(plan, number), own.each[number], rest)
        return replace(own, each=(*own.each[:number], one, *own.each[number + 1 :]), outcome=one.outcome)

    def reopen(self, plan: Plan, state: State) -> TogetherState:
        own = expect(state, TogetherState)
        each = tuple(one if one.answer else self.reader.reopen(self._plan(plan), one) for one in own.each)
        return replace(own, each=each, answer=None)

    def planned(self, plan: Plan) -> int:
        return self.reader.planned(self._plan(plan)) - 1 + len(self.questions)

    def shown(self, plan: Plan) -> int:
        read = self.reader.planned(self._plan(plan)) > 1  # else every answer shows the text
        return self.reader.shown(self._plan(plan)) * (1 if read else len(self.questions))

    def left(self, plan: Plan, state: State) -> int:
        own = expect(state, TogetherState)
        if own.each:
            return own.answers.count(None)
        return self.reader.left(self._plan(plan), own.inner) - 1 + len(self.questions)

    def _plan(self, plan: Plan, number: int | None = None) -> Plan:
        """The plan of the reader inside, for one of the questions or for all of them."""
        return replace(plan, reader=self.reader, question=plan.question if number is None else self.questions[number])

    def _with(self, plan: Plan, state: TogetherState, inner: State) -> TogetherState:
        """The state in which the reader inside stands at `inner`; the questions are next where its answer would be."""
        shared = {name: getattr(inner, name) for name in _SHARED if name != "turns"}
        state = replace(state, inner=inner, **shared)
        ids = list(islice(self.reader.pending(self._plan(plan), inner), 2))
        over = len(ids) == 1 and ids[0].partition("~")[0] == ANSWER
        return replace(state, each=(inner,) * len(self.questions)) if over else state

    def _which(self, state: TogetherState, id: str) -> tuple[int, str]:
        head, _, rest = id.partition("/")
        number = head.removeprefix("question-")
        if head == number or not number.isdecimal() or not 0 < int(number) <= len(state.each):
            raise ValueError(f"turn {id!r} is not pending: the questions are being answered")
        if state.each[int(number) - 1].answer is not None:
            raise ValueError(f"turn {id!r} is not pending: question {number} is answered")
        return int(number) - 1, rest


_SHARED = ("turns", "tokens_read", "memory", "outcome", "reasons")


def list_of(questions: Sequence[str], profile: Profile, budgets: Budgets, tokenizer: Tokenizer) -> str:
    """The question that stands for several, as the reader is asked it.

    Raises ConfigError, with the sum, if the budget of the question or of the memory is too small for so many.
    """
    questions = [question.strip() for question in questions]
    if len(questions) < 2:
        raise ConfigError("reading for several questions together needs at least 2 questions")
    if empty := [number for number, question in enumerate(questions, 1) if not question]:
        raise ConfigError(f"question {empty[0]} is empty")
    profile.needs("together", "several questions together")
    asked = profile.render("together", questions=numbered(questions))
    if (length := tokenizer.count(asked)) > budgets.question:
        sizes = " + ".join(str(tokenizer.count(question)) for question in questions)
        raise ConfigError(
            f"{len(questions)} questions together have {length} tokens ({sizes} and wording), the question budget is"
            f" {budgets.question}: ask fewer together or raise --question-tokens (`question_tokens` in Python)"
        )
    if (need := len(questions) * SECTION_TOKENS) > budgets.memory:
        raise ConfigError(
            f"a memory of {budgets.memory} tokens is too small for {len(questions)} sections of at least"
            f" {SECTION_TOKENS} tokens = {need}: ask fewer together or raise --memory-tokens (`memory_tokens` in Python)"
        )
    return asked


def numbered(texts: Sequence[str]) -> str:
    """Texts as a numbered list."""
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))
