"""The reading protocol: a document, a question and a small window, turn by turn.

    pending(plan, state) -> ids                       which turns can be generated now? None and an answer: finished
    turn(plan, state, id) -> Turn                     what such a turn shows the model
    advance(plan, state, id, completion) -> State     what its completion does to the memory, or the answer
    split(plan, state, id) -> State                   its prompt did not fit the window: show less at once

How a document is read is decided by a `Reader`, a small pure object that has these four functions; the modules of
`memagent.core.readers` are the readers there are. Everything else (drivers, journal, evaluation, training) knows turns and
states, never which reader made them.

Why functions and a value instead of a loop: whoever drives the reading decides how turns are generated (one by one, many at
once, in lockstep over a batch, on another machine) and the protocol cannot tell. A state holds no handle and serialises, so
stopping, resuming, replaying and testing come free. Nothing here does I/O, tells time or draws random numbers: the same
plan and the same completions give the same states.

The laws that every reader keeps, tested as properties over all of them:

- Turns that are pending together may be answered in any order; the state is the same once all of them are.
- A pending turn stays pending, and shows the same, until it is answered or split, or the reading is finished.
- An id names one turn of a reading: it is never pending again after it was answered.
- The spans of the turns together cover what the plan promises to show.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar

from memagent.core.budgets import Budgets
from memagent.core.chunking import Chunk, Chunks, Cutter, cut
from memagent.core.outcomes import AnswerForm, Judgement, Outcome, Rules, fit, judge, judge_answer
from memagent.core.prompts import Profile, Template
from memagent.core.types import Completion, Ranker, Sampling, Span, Text, Tokenizer, Turn
from memagent.errors import ConfigError

# Templates that came later: plans without them have the digest that they had before.
_NEWER = frozenset({"structured", "invalid"})
MISTAKE_TOKENS = 64  # of what was wrong with an answer, as a prompt shows it


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Where a reading stands: what all readers have in common. Immutable; JSON in and out.

    turns        completions consumed so far, those that were asked again included
    tokens_read  document tokens that were dealt with
    memory       the memory, "" before the first update
    outcome      what the last completion came to
    reasons      the model's replies begin inside a block of reasoning that its chat template opened
    answer       None until the reading is finished
    mistake      what was wrong with the form of the last answer, "" if nothing was
    """

    turns: int = 0
    tokens_read: int = 0
    memory: str = ""
    outcome: Outcome = "start"
    reasons: bool = False
    answer: str | None = None
    mistake: str = ""

    @property
    def finished(self) -> bool:
        return self.answer is not None

    @property
    def settled(self) -> bool:
        """Whether the state is small. One that holds the replies of an unfinished round is not; its turns lead to it."""
        return True

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values; `from_json` of the same class gives the same state back."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The state that `to_json` wrote. Raises ConfigError if keys are missing or unknown."""
        values = {"mistake": "", **values}  # older journals have none
        if set(values) != {item.name for item in fields(cls)}:
            raise ConfigError(f"not the state of such a reading: its keys are {', '.join(sorted(values))}")
        return cls(**cls.decoded(values))

    @classmethod
    def decoded(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values as the constructor takes them. Readers whose states hold more than plain values extend it."""
        return dict(values)


S = TypeVar("S", bound=State)


class Reader(Protocol):
    """A way to read: a frozen dataclass, whose fields are its options. All its functions are pure.

    `grows` says that what it shows of a chunk does not depend on the text after it, and that the turn of the n-th chunk has
    the id "chunk-n" (or "round-1/chunk-n"): its reading goes on where the document has grown. `ranks` says that it needs
    the plan's ranker, whatever its options.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    grows: ClassVar[bool]
    ranks: ClassVar[bool]

    @property
    def templates(self) -> tuple[str, ...]:
        """The templates of the profile that its turns show."""
        ...

    def prepare(self, plan: Plan, window: int | None, overhead: int, cutter: Cutter) -> Plan:
        """The plan with what is to be shown: `chunks`, as the cutter gives them, or `excerpt`.

        `window` (None: unknown) and `overhead` are the engine's, in tokens. Raises ConfigError where the budgets do not fit
        the window, TooLongError where the document does not.
        """
        ...

    def start(self, plan: Plan) -> State:
        """The state before the first turn."""
        ...

    def load(self, values: Mapping[str, Any]) -> State:
        """A state of this reader from JSON. Raises ConfigError."""
        ...

    def pending(self, plan: Plan, state: State) -> Iterable[str]:
        """Ids of all turns that can be generated now, in the order in which they are best started.

        The turn that asks for the answer has the id "answer", with "~n" behind it when it is asked for the n-th time.
        """
        ...

    def turn(self, plan: Plan, state: State, id: str) -> Turn:
        """What a pending turn shows the model."""
        ...

    def advance(self, plan: Plan, state: State, id: str, completion: Completion) -> State:
        """The state after the completion of a pending turn. Raises ValueError if that turn is not pending."""
        ...

    def split(self, plan: Plan, state: State, id: str) -> State:
        """The state in which a pending turn's text is shown in smaller parts. Raises ContextTooLongError."""
        ...

    def reopen(self, plan: Plan, state: State) -> State:
        """The state in which a reading that ended with an empty answer is asked for its answer again, under a new id."""
        ...

    def planned(self, plan: Plan) -> int:
        """Turns of a reading in which none is asked again or split; the most there can be where the reader decides."""
        ...

    def shown(self, plan: Plan) -> int:
        """Tokens of the document, and of notes on it, that so many turns show, at most."""
        ...

    def left(self, plan: Plan, state: State) -> int:
        """Turns still to come, likewise."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything about a reading that does not change while it runs.

    chunks   what the reader shows part by part, in document order; for an excerpt, one chunk that stands for all of it
    excerpt  the characters that the reader chose to show together, in order; None: it shows all of the document
    ranker   ranks passages for readers that search; handed in because no ranking is standard library
    form     what the answer must look like; None: any text
    """

    reader: Reader
    question: str
    text: Text
    tokenizer: Tokenizer
    profile: Profile
    budgets: Budgets
    sampling: Sampling = field(default_factory=Sampling)
    rules: Rules = "careful"
    ranker: Ranker | None = None
    form: AnswerForm | None = None
    chunks: Chunks = field(default_factory=Chunks)
    excerpt: tuple[Span, ...] | None = None

    @property
    def turns(self) -> int:
        """Turns of a reading without retries or splits."""
        return self.reader.planned(self)

    @property
    def tokens(self) -> int:
        """Document tokens that are shown, counted chunk by chunk."""
        return self.chunks.tokens

    def shown(self, index: int) -> tuple[Span, ...]:
        """The characters of the document that part `index` shows."""
        return (self.chunks[index].span,) if self.excerpt is None else self.excerpt

    @property
    def asked(self) -> str:
        """The question as prompts show it: with the form of its answer, if that has one."""
        if self.form is None:
            return self.question
        return self.profile.render("structured", question=self.question, schema=self.form.schema)

    def prompt(self, template: Template, **values: object) -> str:
        """A template with the question and these fields filled."""
        return self.profile.render(template, question=self.asked, **values)

    def note(self, again: bool, limit: int, mistake: str = "") -> str:
        """What follows a prompt: nothing, unless it is shown `again`, because its reply was empty or too long, or the
        answer had a mistake, which is said also when a reading that failed for it is resumed."""
        if mistake and self.profile.invalid:
            return self.profile.render("invalid", mistake=mistake, limit=limit)
        return self.profile.render("retry", limit=limit) if again else ""

    @property
    def answer_note(self) -> int:
        """The most tokens that a mistake may add to what follows the prompt of an answer that is shown again."""
        if self.form is None:
            return 0
        notes = [self.profile.render(name, mistake="", limit=9999) for name in ("invalid", "retry")]
        return max(0, MISTAKE_TOKENS + self.tokenizer.count(notes[0]) - self.tokenizer.count(notes[1]))

    def judge(self, reply: str, completion: Completion, *, retried: bool) -> Judgement:
        """What a reply that is to be written comes to; see `outcomes.judge`."""
        return judge(
            reply,
            completion,
            question=self.question,
            empty=self.profile.empty_memory,
            budget=self.budgets.memory,
            tokenizer=self.tokenizer,
            rules=self.rules,
            retried=retried,
        )

    def judge_answer(self, reply: str, completion: Completion, *, retried: bool) -> Judgement:
        """What the reply to the last turn comes to; see `outcomes.judge_answer`."""
        limit = f"It was cut off at the {self.budgets.answer} tokens that an answer may have"
        judged = judge_answer(
            reply,
            answer_format=self.profile.answer_format,
            rules=self.rules,
            retried=retried,
            form=self.form,
            not_found=self.profile.not_found,
            cut=limit if completion.finish == "length" else "",
        )
        return replace(judged, mistake=fit(judged.mistake, MISTAKE_TOKENS, self.tokenizer, whole_lines=False))

    def digest(self) -> str:
        """SHA-256 of what decides the turns, apart from the document's text: two plans with one digest ask the same."""
        values = (
            self.reader.name,
            options(self.reader),
            self.question,
            self.chunks.digest(),
            len(self.text),
            None if self.excerpt is None else [(span.start, span.end) for span in self.excerpt],
            {name: text for name, text in asdict(self.profile).items() if text or name not in _NEWER},
            asdict(self.budgets),
            asdict(self.sampling),
            self.rules,
            None,  # a place of former versions, so that digests stay
            *((self.form.name,) if self.form else ()),
        )
        return hashlib.sha256(json.dumps(values, ensure_ascii=True).encode()).hexdigest()


def plan_reading(
    text: Text,
    question: str,
    *,
    reader: Reader,
    tokenizer: Tokenizer,
    profile: Profile,
    budgets: Budgets,
    window: int | None = None,
    overhead: int = 0,
    sampling: Sampling | None = None,
    rules: Rules = "careful",
    ranker: Ranker | None = None,
    form: AnswerForm | None = None,
    cutter: Cutter = cut,
) -> Plan:
    """Checks question and budgets, lets the reader cut or choose what it shows, and returns the plan. No model is called.

    `window` and `overhead` are the engine's, in tokens. The cutter may know the chunks
    of the text already. Raises ConfigError: empty or too long question,
    budgets over the window; TooLongError: a document that this reader cannot show.
    """
    question = question.strip()
    if not question:
        raise ConfigError("the question is empty")
    if any("\ud800" <= char <= "\udfff" for char in question):
        raise ConfigError(f"the question is not valid Unicode: {question!a}")
    plan = Plan(
        reader=reader,
        question=question,
        text=text,
        tokenizer=tokenizer,
        profile=profile,
        budgets=budgets,
        sampling=sampling or Sampling(),
        rules=rules,
        ranker=ranker,
        form=form,
    )
    _check_question(plan)
    return reader.prepare(plan, window, overhead, cutter)


def _check_question(plan: Plan) -> None:
    if plan.form is not None:
        plan.profile.needs("structured", "an answer that follows a schema")
    if (length := plan.tokenizer.count(plan.asked)) <= plan.budgets.question:
        return
    what, way = "the question has", "ask a shorter question or raise"
    if plan.form is not None:
        own, schema = plan.tokenizer.count(plan.question), plan.tokenizer.count(plan.form.schema)
        what = f"the question ({own} tokens) with its schema ({schema}) and wording has"
        way = "use a smaller schema, or begin the reading with more for"
    raise ConfigError(f"{what} {length} tokens, the question budget is {plan.budgets.question}: {way} the question budget")


def start(plan: Plan) -> State:
    """The state before the first turn."""
    return plan.reader.start(plan)


def pending(plan: Plan, state: State) -> Iterable[str]:
    """Ids of all turns that can be generated now. None: the reading is finished."""
    return () if state.finished else plan.reader.pending(plan, state)


def turn(plan: Plan, state: State, id: str) -> Turn:
    """What a pending turn shows the model. It draws from a seed of its own, which follows from its id alone."""
    made, sampling = plan.reader.turn(plan, state, id), plan.sampling
    return made if sampling.seed is None else replace(made, sampling=sampling.own(f"{sampling.seed}/{id}"))


def advance(plan: Plan, state: State, id: str, completion: Completion) -> State:
    """The state after the completion of a pending turn. Raises ValueError if the turn is not pending."""
    if state.finished:
        raise ValueError(f"this reading is finished: it takes no completion of turn {id!r}")
    return plan.reader.advance(plan, state, id, completion)


def split(plan: Plan, state: State, id: str) -> State:
    """The state in which the text of a pending turn is shown in smaller parts, because its prompt did not fit the window.

    Raises ContextTooLongError where there is nothing left to split.
    """
    return plan.reader.split(plan, state, id)


def expect(state: State, kind: type[S]) -> S:
    """The state, which must be of the kind that a reader makes. Raises TypeError."""
    if not isinstance(state, kind):
        raise TypeError(f"a {type(state).__name__} is the state of another reader, which needs a {kind.__name__}")
    return state


def options(reader: Reader) -> dict[str, Any]:
    """A reader's options, JSON-ready. One that came later (`newer` in its metadata) is left out at its default, so that
    readings from before stay as they were."""
    if not is_dataclass(reader) or isinstance(reader, type):
        return {}
    newer = {one.name: one.default for one in fields(reader) if one.metadata.get("newer")}
    return {name: value for name, value in asdict(reader).items() if name not in newer or value != newer[name]}


def whole(text: Text, tokens: int) -> Chunks:
    """A text as one chunk of that many tokens."""
    return Chunks([Chunk(start=0, end=len(text), tokens=tokens)])


def _plain(value: Any) -> Any:
    if isinstance(value, Span):
        return [value.start, value.end]
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
