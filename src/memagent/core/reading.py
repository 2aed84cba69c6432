"""The reading protocol: a document, a question and a small window, turn by turn.

    next_turn(plan, state) -> Turn | None            what must be generated now? None: the reading is finished
    advance(plan, state, completion) -> State        overwrite the memory, or record the answer
    split_chunk(plan, state) -> State                the prompt did not fit the window: read the chunk in two halves

Why two functions and a value instead of a loop: whoever drives the reading decides how turns are generated (one by one,
many at once, in lockstep over a batch, on another machine) and the protocol cannot tell. A state is small, holds no
handle and serialises, so that stopping, resuming, replaying and testing come free. Nothing here does I/O, tells time or
draws random numbers: the same plan and the same completions give the same states.

Method: MemAgent (arXiv 2507.02259), §3.1. The memory of turn k is generated from (question, memory of turn k−1, chunk k)
and replaces it; the answer is generated from (question, last memory) alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from memagent.core.budgets import JOIN_SLACK, Budgets, check_budgets, template_tokens
from memagent.core.chunking import Chunk, Chunks, chunk, split
from memagent.core.outcomes import (
    Outcome,
    Rules,
    Write,
    appended,
    boxed,
    fit,
    has_form,
    newest,
    over_budget,
    reply_text,
    says_no_change,
    without_loop,
)
from memagent.core.prompts import Profile
from memagent.core.types import Completion, Sampling, Span, Text, Tokenizer, Turn
from memagent.errors import ConfigError, ContextTooLongError, TooLongError


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything about a reading that does not change while it runs.

    `chunks` are the planned chunks, in order; a direct reading has one, the whole document, shown in its only turn. `write`
    is what the method is about: a reply overwrites the memory. "append" is the baseline that only adds to it; when it is
    full, its oldest lines go.
    """

    question: str
    text: Text
    chunks: Chunks
    tokenizer: Tokenizer
    profile: Profile
    budgets: Budgets
    sampling: Sampling = field(default_factory=Sampling)
    rules: Rules = "careful"
    direct: bool = False
    write: Write = "overwrite"

    @property
    def turns(self) -> int:
        """Turns of a reading without retries or splits."""
        return 1 if self.direct else len(self.chunks) + 1

    @property
    def tokens(self) -> int:
        """Tokens of the document, counted chunk by chunk."""
        return self.chunks.tokens

    def digest(self) -> str:
        """SHA-256 of what decides the turns, apart from the document's text: two plans with one digest ask the same."""
        values = (
            self.question,
            self.chunks.digest(),
            len(self.text),
            asdict(self.profile),
            asdict(self.budgets),
            asdict(self.sampling),
            self.rules,
            self.direct,
            *([] if self.write == "overwrite" else [self.write]),
        )
        return hashlib.sha256(json.dumps(values, ensure_ascii=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Where a reading stands. Small, immutable, JSON in and out.

    turn       completions consumed so far, failed tries included
    chunk      index of the planned chunk that is being read
    pending    what is left of that chunk; empty: all of it
    limit      longest span, in characters, that is shown at once; set after a chunk did not fit the window
    memory     the memory, "" before the first chunk
    retry      the current turn is asked again, because its last reply was empty or too long
    reasons    the model's replies begin inside a block of reasoning that its chat template opened
    outcome    what the last completion came to
    answer     None until the reading is finished
    """

    turn: int = 0
    chunk: int = 0
    pending: tuple[Span, ...] = ()
    limit: int | None = None
    memory: str = ""
    retry: bool = False
    reasons: bool = False
    outcome: Outcome = "start"
    answer: str | None = None

    @property
    def finished(self) -> bool:
        return self.answer is not None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values; `state_from_json` gives the same state back."""
        return {**asdict(self), "pending": [[span.start, span.end] for span in self.pending]}


def state_from_json(values: Mapping[str, Any]) -> State:
    """The state that `to_json` wrote. Raises ConfigError if keys are missing or unknown."""
    if set(values) != {item.name for item in fields(State)}:
        raise ConfigError(f"not a reading state: its keys are {', '.join(sorted(values))}")
    pending = tuple(Span(start=start, end=end) for start, end in values["pending"])
    return State(**{**values, "pending": pending})


def plan_reading(
    text: Text,
    question: str,
    *,
    tokenizer: Tokenizer,
    profile: Profile,
    budgets: Budgets,
    window: int | None = None,
    overhead: int = 0,
    sampling: Sampling | None = None,
    rules: Rules = "careful",
    direct: bool = False,
    write: Write = "overwrite",
    chunks: Chunks | None = None,
) -> Plan:
    """Checks the budgets against the window, cuts the document and returns the plan. No model is called.

    `window` and `overhead` are the engine's, in tokens. `chunks` re-uses the cut of another plan over the same text,
    tokenizer and chunk budget. Raises ConfigError: empty or too long question, budgets over the window; TooLongError: a
    document too long to be read directly.
    """
    question = question.strip()
    if not question:
        raise ConfigError("the question is empty")
    if any("\ud800" <= char <= "\udfff" for char in question):
        raise ConfigError(f"the question is not valid Unicode: {question!a}")
    if (length := tokenizer.count(question)) > budgets.question:
        raise ConfigError(
            f"the question has {length} tokens, the question budget is {budgets.question}:"
            " ask a shorter question or raise the budget"
        )
    template = template_tokens(profile, tokenizer, overhead)
    # The text that stands for an empty memory may be longer than a memory.
    template += max(0, tokenizer.count(profile.empty_memory) - budgets.memory)
    plan = Plan(
        question=question,
        text=text,
        chunks=Chunks(),
        tokenizer=tokenizer,
        profile=profile,
        budgets=budgets,
        sampling=sampling or Sampling(),
        rules=rules,
        direct=direct,
        write=write,
    )
    if direct:
        return replace(plan, chunks=_check_direct(plan, window, overhead))
    check_budgets(budgets, template, window)
    return replace(plan, chunks=Chunks(chunk(text, tokenizer, budgets.chunk)) if chunks is None else chunks)


def next_turn(plan: Plan, state: State) -> Turn | None:
    """The turn to generate from this state, or None if the reading is finished."""
    if state.finished:
        return None
    span = current_span(plan, state)
    prompt = _answer_prompt(plan, state) if span is None else _update_prompt(plan, state, span)
    reply, reasoning = (plan.budgets.answer if span is None else plan.budgets.memory), plan.budgets.reasoning
    note = plan.profile.render("retry", limit=reply) if state.retry else ""
    return Turn(
        kind="answer" if span is None else "update",
        number=state.turn,
        system=plan.profile.system,
        user=prompt + note,
        max_tokens=reply + reasoning,
        sampling=_turn_sampling(plan, state),
        span=span,
        draft=state.memory if span is not None and plan.write == "overwrite" and not state.retry else "",
    )


def advance(plan: Plan, state: State, completion: Completion) -> State:
    """The state after a completion of `next_turn(plan, state)`. Raises ValueError if the reading is finished."""
    if state.finished:
        raise ValueError("this reading is finished: it takes no more completions")
    span = current_span(plan, state)
    shown = plan.question + state.memory + (plan.text.read(span.start, span.end) if span else "")
    reply, reasons = reply_text(completion, shown, state.reasons)
    state = replace(state, reasons=reasons)
    if span is None:
        return _record_answer(plan, state, reply)
    return _update_memory(plan, state, reply, completion)


def split_chunk(plan: Plan, state: State) -> State:
    """The state in which the current chunk is read in two halves, and later chunks in pieces no longer than those.

    Raises ContextTooLongError if there is nothing to halve: an answer turn, or a single character.
    """
    span = current_span(plan, state)
    halves = split(plan.text, span) if span is not None else None
    if halves is None:
        what = "the whole document" if plan.direct else "the question and the memory" if span is None else "one character"
        raise ContextTooLongError(f"the server's window is too small for {what}: use smaller budgets or a larger window")
    rest = _pieces(plan, state)[1:]
    longest = max(len(halves[0]), len(halves[1]))
    return replace(state, pending=(*halves, *rest), limit=longest, retry=False, outcome="split")


def current_span(plan: Plan, state: State) -> Span | None:
    """The span that the next turn shows; None if the next turn is the answer."""
    pieces = _pieces(plan, state)
    return pieces[0] if pieces else None


def _pieces(plan: Plan, state: State) -> tuple[Span, ...]:
    """What is left of the current planned chunk; its first piece is no longer than the limit."""
    if plan.direct or state.chunk >= len(plan.chunks):
        return ()
    pieces = list(state.pending) or [plan.chunks[state.chunk].span]
    while state.limit is not None and len(pieces[0]) > state.limit:
        halves = split(plan.text, pieces[0])
        if halves is None:
            break
        pieces[:1] = halves
    return tuple(pieces)


def _update_memory(plan: Plan, state: State, reply: str, completion: Completion) -> State:
    careful = plan.rules == "careful"
    if not reply:
        if careful and not state.retry:
            return _retry(state, "retry_empty")
        stays = careful or plan.write == "append"
        return _next_span(plan, state, state.memory if stays else "", "empty")
    if careful and says_no_change(reply, plan.question):
        return _next_span(plan, state, state.memory, "unchanged")
    form = plan.profile.memory_line
    fitted = over_budget(reply, completion, plan.budgets.memory, plan.tokenizer)
    if fitted:
        once = without_loop(reply) if careful else reply
        fits = once != reply and plan.tokenizer.count(once) <= plan.budgets.memory
        begins = fits and not state.memory and form and has_form(once, form)
        if careful and not state.retry and not begins:
            return _retry(state, "retry_long")
        reply = once if fits else fit(once, plan.budgets.memory, plan.tokenizer, careful)
    if careful and not has_form(reply, form):
        return _next_span(plan, state, state.memory, "malformed")
    if plan.write == "append":
        notes = appended(state.memory, reply)
        reply = newest(notes, plan.budgets.memory, plan.tokenizer)
        fitted = fitted or reply != notes
    return _next_span(plan, state, reply, "fitted" if fitted else "kept")


def _record_answer(plan: Plan, state: State, reply: str) -> State:
    if plan.profile.answer_format == "boxed":
        content = boxed(reply)
        reply = reply if content is None else content
    if not reply and plan.rules == "careful" and not state.retry:
        return _retry(state, "retry_empty")
    outcome: Outcome = "answered" if reply else "empty"
    return replace(state, turn=state.turn + 1, retry=False, outcome=outcome, answer=reply)


def _retry(state: State, outcome: Outcome) -> State:
    return replace(state, turn=state.turn + 1, retry=True, outcome=outcome)


def _next_span(plan: Plan, state: State, memory: str, outcome: Outcome) -> State:
    rest = _pieces(plan, state)[1:]
    return replace(
        state,
        turn=state.turn + 1,
        chunk=state.chunk if rest else state.chunk + 1,
        pending=rest,
        memory=memory,
        retry=False,
        outcome=outcome,
    )


def _update_prompt(plan: Plan, state: State, span: Span) -> str:
    noting = plan.write == "append"
    memory = "" if noting and not plan.profile.note else state.memory
    return plan.profile.render(
        "note" if noting and plan.profile.note else "update",
        question=plan.question,
        memory=memory or plan.profile.empty_memory,
        chunk=plan.text.read(span.start, span.end),
        memory_tokens=plan.budgets.memory,
    )


def _answer_prompt(plan: Plan, state: State) -> str:
    if plan.direct:
        return plan.profile.render("direct", question=plan.question, document=plan.text.read(0, len(plan.text)))
    return plan.profile.render("answer", question=plan.question, memory=state.memory or plan.profile.empty_memory)


def _turn_sampling(plan: Plan, state: State) -> Sampling:
    """Each turn draws from its own seed, so that a resumed reading continues as an uninterrupted one would."""
    sampling = plan.sampling
    return sampling if sampling.seed is None else replace(sampling, seed=(sampling.seed * 1_000_003 + state.turn) % 2**31)


def _check_direct(plan: Plan, window: int | None, overhead: int) -> Chunks:
    """The whole document as one chunk, if it fits the window. Raises ConfigError."""
    if not plan.profile.direct:
        raise ConfigError(f"the profile {plan.profile.name!r} has no wording for a direct answer: read without --direct")
    size = len(plan.text)
    tokens = plan.tokenizer.count(plan.text.read(0, size))
    wording = plan.tokenizer.count(plan.profile.system + plan.profile.render("direct", question=plan.question, document=""))
    need = tokens + wording + overhead + JOIN_SLACK + plan.budgets.answer_tokens
    if window is not None and need > window:
        raise TooLongError(
            f"the document does not fit the window whole: {tokens} tokens + {need - tokens} of wording and answer = {need},"
            f" the window is {window}: read without --direct"
        )
    return Chunks([Chunk(start=0, end=size, tokens=tokens)])
