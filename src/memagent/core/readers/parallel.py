"""Rounds: every chunk is read at once against the same memory, and the notes are merged into it (PI-Mem, arXiv 2608.03048).

A round has two phases. In the first every chunk is shown with the memory of the round before, and each reply is a note or
says that there is nothing new; these turns do not depend on each other. In the second the notes are merged, in as many
levels as it takes (the published system puts all of them in one prompt, which thousands of chunks do not fit). A round that
brings nothing new, or whose merge leaves the memory as it was, is the last one; there are at most `rounds`.

With `focus`, only the first round shows every chunk. A later one shows the chunks that have a word which is new in the
memory (`leads`), at most a tenth of all: it costs little, and follows a chain of facts from name to name.

How replies are handled, besides the rules for every reader:

- A note's lines that stand in the memory already are left out; a note without others says that there is nothing new.
- A single note on an empty memory is the memory; no model is asked to merge it.
- A merge whose reply is empty, or that the model's check does not accept, is replaced by its notes one after the other, as
  far as they fit.
- A merge that says nothing changed leaves the memory as it was.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar

from memagent.core import chunking
from memagent.core.chunking import Cutter
from memagent.core.outcomes import Judgement, Outcome, reply_text, says
from memagent.core.readers.chunkwise import ANSWER, check_window
from memagent.core.readers.leads import check_ranker, leads, ranked
from memagent.core.readers.notes import Group, Note, check_merge, combined, grouped, merged_text, most_merges, new_lines
from memagent.core.reading import Plan, State, expect
from memagent.core.types import Completion, Span, Turn, TurnKind
from memagent.errors import ConfigError, ContextTooLongError


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundState(State):
    """Where a reading in rounds stands. The turns of a phase are named by a key: the offset at which a piece of the
    document starts, or the number of the first note of a merge; the answer has the key -1.

    round    the round under way, from 1; one more than there may be: the answer is next
    level    0: chunks are being read; n: notes are being merged for the n-th time in this round
    shown    the numbers of the chunks of this round, in document order; None: all
    first    so many of the chunks of this round are read, without one left out
    done     keys of the turns of this phase that are answered (of the chunks after those), sorted
    notes    what the turns of this phase came to, by key, sorted; those with nothing new are left out
    merging  the notes that this level merges, and `groups` which of them go together
    tried    turns that are asked again: how often they were asked so far, by key
    cuts     offsets at which chunks were cut because their prompts did not fit, sorted
    """

    round: int = 1
    level: int = 0
    shown: tuple[int, ...] | None = None
    first: int = 0
    done: tuple[int, ...] = ()
    notes: tuple[tuple[int, Note], ...] = ()
    merging: tuple[Note, ...] = ()
    groups: tuple[Group, ...] = ()
    tried: tuple[tuple[int, int], ...] = ()
    cuts: tuple[int, ...] = ()

    @property
    def settled(self) -> bool:
        return not (self.level or self.first or self.done)

    @property
    def last_level(self) -> bool:
        """Whether this merge makes the memory."""
        return len(self.groups) == 1

    def tries(self, key: int) -> int:
        """How often a turn was asked and gave nothing that could be used."""
        return dict(self.tried).get(key, 0)

    def to_json(self) -> dict[str, Any]:
        notes = {
            "notes": [[key, note.to_json()] for key, note in self.notes],
            "merging": [note.to_json() for note in self.merging],
        }
        return State.to_json(replace(self, notes=(), merging=())) | notes

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RoundState:
        return super(RoundState, cls).from_json({"shown": None, **values})  # older journals have none

    @classmethod
    def decoded(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        shown = values["shown"]
        return {
            **values,
            "shown": None if shown is None else tuple(shown),
            "done": tuple(values["done"]),
            "notes": tuple((key, Note.from_json(note)) for key, note in values["notes"]),
            "merging": tuple(Note.from_json(note) for note in values["merging"]),
            "groups": tuple((first, last) for first, last in values["groups"]),
            "tried": tuple((key, count) for key, count in values["tried"]),
            "cuts": tuple(values["cuts"]),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One turn of a phase: a piece of the document, notes to be merged (`text`), or the answer."""

    key: int
    id: str
    kind: TurnKind
    spans: tuple[Span, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelReader:
    """All chunks at once, in at most `rounds` rounds; their notes are merged into the memory."""

    name: ClassVar[str] = "parallel"
    summary: ClassVar[str] = "Reads all chunks at once and merges the notes into the memory, in at most --rounds rounds."
    grows: ClassVar[bool] = True
    ranks: ClassVar[bool] = False
    templates: ClassVar[tuple[str, ...]] = ("round", "merge", "answer")

    rounds: int = 3
    focus: bool = field(default=False, metadata={"newer": True})

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"a document cannot be read in {self.rounds} rounds: give at least 1")

    def prepare(self, plan: Plan, window: int | None, overhead: int, cutter: Cutter) -> Plan:
        plan.profile.needs("round", f"the reader {self.name!r}")
        plan.profile.needs("merge", f"the reader {self.name!r}")
        check_merge(plan)
        check_window(plan, window, overhead)
        plan = replace(plan, chunks=cutter(plan.text, plan.tokenizer, plan.budgets.chunk))
        if self.focus:
            check_ranker(plan, f"the option 'focus' of the reader {self.name!r}")
            ranked(plan, plan.question)  # what the ranker needs, and its index, are not first missed after a round
        return plan

    def start(self, plan: Plan) -> RoundState:
        return RoundState() if len(plan.chunks) else RoundState(round=self.rounds + 1)

    def load(self, values: Mapping[str, Any]) -> RoundState:
        return RoundState.from_json(values)

    def pending(self, plan: Plan, state: State) -> Iterator[str]:
        return (item.id for item in self._items(plan, expect(state, RoundState)))

    def turn(self, plan: Plan, state: State, id: str) -> Turn:
        own, item = self._found(plan, state, id)
        budget = plan.budgets.answer if item.kind == "answer" else plan.budgets.memory
        again = plan.note(own.tries(item.key) % 2 == 1, budget, own.mistake)
        return Turn(
            id=id,
            kind=item.kind,
            system=plan.profile.system,
            user=self._prompt(plan, own, item) + again,
            max_tokens=budget + plan.budgets.reasoning,
            sampling=plan.sampling,
            spans=item.spans,
            draft="" if again else _draft(plan, own, item),
        )

    def advance(self, plan: Plan, state: State, id: str, completion: Completion) -> RoundState:
        own, item = self._found(plan, state, id)
        own, retried = replace(own, turns=own.turns + 1), own.tries(item.key) % 2 == 1
        # What one turn shows about the model's way to reason is not used by the others: they do not depend on each other.
        reply, _ = reply_text(completion, self._prompt(plan, own, item), reasons=False)
        if item.kind == "answer":
            answer = plan.judge_answer(reply, completion, retried=retried)
            own = replace(own, outcome=answer.outcome, mistake=answer.mistake)
            return _again(own, item, answer.outcome) if answer.retry else replace(own, answer=answer.text)
        judged = self._judged(plan, own, item, reply, completion, retried)
        if judged.retry:
            return _again(own, item, judged.outcome)
        note, outcome = _noted(own, item, judged) if item.kind == "note" else _merged(plan, own, item, judged)
        return self._moved(plan, self._answered(plan, replace(own, outcome=outcome), item, note))

    def split(self, plan: Plan, state: State, id: str) -> RoundState:
        own, item = self._found(plan, state, id)
        tried = tuple(one for one in own.tried if one[0] != item.key)
        if item.kind == "note" and (halves := chunking.split(plan.text, item.spans[0])) is not None:
            return replace(own, cuts=tuple(sorted((*own.cuts, halves[1].start))), tried=tried, outcome="split")
        if item.kind == "merge" and (groups := _parted(own.groups, item.key)) is not None:
            return self._moved(plan, replace(own, groups=groups, tried=tried, outcome="split"))
        shown = {"note": "one character", "merge": "two notes"}.get(item.kind, "the question and the memory")
        raise ContextTooLongError(f"the server's window is too small for {shown}: use smaller budgets or a larger window")

    def reopen(self, plan: Plan, state: State) -> RoundState:
        own = expect(state, RoundState)
        return replace(own, answer=None, tried=((_ANSWER_KEY, (own.tries(_ANSWER_KEY) // 2 + 1) * 2),))

    def planned(self, plan: Plan) -> int:
        later = self._round_turns(plan, self._later(plan, len(plan.chunks)))
        return self._round_turns(plan, len(plan.chunks)) + (self.rounds - 1) * later + 1

    def shown(self, plan: Plan) -> int:
        pieces, later = len(plan.chunks), self._later(plan, len(plan.chunks))
        merges = most_merges(pieces, self._fan_in(plan)) + (self.rounds - 1) * most_merges(later, self._fan_in(plan))
        again = min(plan.tokens, later * plan.budgets.chunk)
        return plan.tokens + (self.rounds - 1) * again + merges * plan.budgets.chunk

    def left(self, plan: Plan, state: State) -> int:
        own = expect(state, RoundState)
        if state.finished or own.round > self.rounds:
            return 0 if state.finished else 1
        pieces = len(self._numbers(plan, own)) + len(own.cuts)
        later = self._later(plan, len(plan.chunks)) + len(own.cuts)
        after = (self.rounds - own.round) * self._round_turns(plan, later) + 1
        if own.level:
            merges = most_merges(len(own.groups), self._fan_in(plan)) if len(own.groups) > 1 else 0
            return after + merges + sum(1 for _ in self._items(plan, own))
        return after + max(0, self._round_turns(plan, pieces) - own.first - len(own.done))

    def _numbers(self, plan: Plan, state: RoundState) -> Sequence[int]:
        """The chunks of this round."""
        return range(len(plan.chunks)) if state.shown is None else state.shown

    def _later(self, plan: Plan, chunks: int) -> int:
        """How many of so many chunks a later round shows, at most."""
        return min(chunks, max(_FEW, chunks // _SHARE)) if self.focus else chunks

    def _shown(self, plan: Plan, before: str, memory: str) -> tuple[int, ...] | None:
        """The chunks of the round that follows a change of the memory."""
        if not self.focus:
            return None
        _, numbers = leads(plan, memory, before, self._later(plan, len(plan.chunks)))
        return numbers

    def _round_turns(self, plan: Plan, pieces: int) -> int:
        return pieces + most_merges(pieces, self._fan_in(plan))

    def _fan_in(self, plan: Plan) -> int:
        """How many notes fit one merge, however long they are, or are estimated to be."""
        return max(2, plan.budgets.chunk // (plan.budgets.memory + 1)) if plan.tokenizer.exact else 2

    def _items(self, plan: Plan, state: RoundState, only: int | None = None) -> Iterator[Item]:
        """The turns of this phase that are not answered, in document order; of chunks, `only` those of one."""
        done = set(state.done)
        if state.round > self.rounds:
            yield Item(key=_ANSWER_KEY, id=ANSWER + _suffix(state, _ANSWER_KEY), kind="answer")
        elif state.level:
            for first, last in state.groups:
                if first not in done and _needs_turn(state, (first, last)):
                    note = combined(state.merging[first:last])
                    name = f"round-{state.round}/merge-{state.level}:{first + 1}-{last}"
                    yield Item(key=first, id=name + _suffix(state, first), kind="merge", spans=note.spans, text=note.text)
        else:
            numbers = self._numbers(plan, state)[state.first :]
            for number in numbers if only is None else [only] if only in numbers else []:
                pieces = _pieces(plan, state, number)
                for span in pieces:
                    if span.start not in done:
                        name = f"round-{state.round}/chunk-{number + 1}"
                        part = f":{span.start}-{span.end}" if len(pieces) > 1 else ""
                        yield Item(key=span.start, id=name + part + _suffix(state, span.start), kind="note", spans=(span,))

    def _found(self, plan: Plan, state: State, id: str) -> tuple[RoundState, Item]:
        own, named = expect(state, RoundState), _CHUNK_ID.match(id)
        # Without the number, one chunk whose turn takes long would make each of the others a search through those read.
        for item in self._items(plan, own, int(named[1]) - 1 if named else None):
            if item.id == id:
                return own, item
        raise ValueError(f"turn {id!r} is not pending in round {own.round}")

    def _prompt(self, plan: Plan, state: RoundState, item: Item) -> str:
        empty = plan.profile.empty_memory
        if item.kind == "answer":
            return plan.prompt("answer", memory=state.memory or empty)
        budget = plan.budgets.memory
        if item.kind == "note":
            text = plan.text.read(item.spans[0].start, item.spans[0].end)
            return plan.prompt("round", memory=state.memory or empty, chunk=text, memory_tokens=budget)
        memory = state.memory if state.last_level else ""
        return plan.prompt("merge", memory=memory or empty, notes=item.text, memory_tokens=budget)

    def _judged(
        self, plan: Plan, state: RoundState, item: Item, reply: str, completion: Completion, retried: bool
    ) -> Judgement:
        if item.kind == "note" and says(reply, plan.profile.nothing):
            return Judgement(outcome="skipped")
        return plan.judge(reply, completion, retried=retried)

    def _answered(self, plan: Plan, state: RoundState, item: Item, note: Note) -> RoundState:
        """The state with a turn of this phase answered."""
        done, first, tokens = {*state.done, item.key}, state.first, state.tokens_read
        notes, place = state.notes, bisect_left(state.notes, item.key, key=lambda one: one[0])
        if note.text:
            notes = (*notes[:place], (item.key, note), *notes[place:])
        if item.kind == "note":
            number = _chunk_at(plan, item.key, first)
            if state.round == 1 and all(span.start in done for span in _pieces(plan, state, number)):
                tokens += plan.chunks[number].tokens
            numbers = self._numbers(plan, state)
            while first < len(numbers) and (keys := {span.start for span in _pieces(plan, state, numbers[first])}) <= done:
                done -= keys
                first += 1
        tried = tuple(one for one in state.tried if one[0] != item.key)
        return replace(state, done=tuple(sorted(done)), first=first, notes=notes, tokens_read=tokens, tried=tried)

    def _moved(self, plan: Plan, state: RoundState) -> RoundState:
        """The state in the next phase in which a turn is pending, if this one is over."""
        while next(self._items(plan, state), None) is None:
            noted = dict(state.notes)
            if not state.level:
                notes = tuple(note for _, note in state.notes)
                if not notes:  # nothing new in the whole document
                    return _phase(state, round=self.rounds + 1)
            elif state.last_level:
                made = noted[0] if 0 in noted else state.merging[0]
                if made.text == state.memory:  # another round would show the same again
                    state = _phase(state, round=self.rounds + 1)
                else:
                    shown = self._shown(plan, state.memory, made.text) if state.round < self.rounds else None
                    state = _phase(state, round=state.round + 1, memory=made.text, shown=shown)
                continue
            else:
                notes = tuple(noted.get(first) or combined(state.merging[first:last]) for first, last in state.groups)
            groups = grouped(notes, plan.tokenizer, plan.budgets.chunk)
            state = _phase(state, level=state.level + 1, merging=notes, groups=groups)
        return state


# The chunks that a later round shows at most, with `focus`: one of ten, or a few.
_SHARE, _FEW = 10, 4
_ANSWER_KEY = -1
_CHUNK_ID = re.compile(r"round-\d+/chunk-(\d+)")


def _draft(plan: Plan, state: RoundState, item: Item) -> str:
    """A good guess at a reply: most chunks have nothing new, and a merge keeps the memory."""
    if item.kind == "note":
        return plan.profile.nothing
    return state.memory if item.kind == "merge" and state.last_level else ""


def _suffix(state: RoundState, key: int) -> str:
    """What sets a turn that is asked again apart from the one before it."""
    tries = state.tries(key)
    return f"~{tries + 1}" if tries else ""


def _phase(state: RoundState, **values: Any) -> RoundState:
    """The state at the beginning of a phase."""
    kept = {name: getattr(state, name) for name in ("turns", "tokens_read", "memory", "outcome", "round", "cuts")}
    return RoundState(**kept | values)


def _again(state: RoundState, item: Item, outcome: Outcome) -> RoundState:
    counts = dict(state.tried) | {item.key: state.tries(item.key) + 1}
    return replace(state, tried=tuple(sorted(counts.items())), outcome=outcome)


def _noted(state: RoundState, item: Item, judged: Judgement) -> tuple[Note, Outcome]:
    """What a chunk brought, and what its reply came to."""
    note = Note(text=new_lines(judged.text or "", state.memory), spans=item.spans)
    if note.text:
        return note, "noted"
    return note, judged.outcome if judged.text is None else "unchanged"


def _merged(plan: Plan, state: RoundState, item: Item, judged: Judgement) -> tuple[Note, Outcome]:
    """The memory, or the note, that a merge made; where it made none, its notes one after the other."""
    memory = state.memory if state.last_level else ""
    return Note(text=merged_text(plan, judged, memory, item.text), spans=item.spans), judged.outcome


def _needs_turn(state: RoundState, group: Group) -> bool:
    """Whether a model is asked to merge a group: not for one note alone, unless there is a memory to merge it with."""
    return group[1] - group[0] > 1 or (state.last_level and bool(state.memory))


def _parted(groups: tuple[Group, ...], key: int) -> tuple[Group, ...] | None:
    """The groups with one of them halved; None if it has fewer than three notes, whose halves would not get merged."""
    place = next(number for number, group in enumerate(groups) if group[0] == key)
    first, last = groups[place]
    if last - first < 3:
        return None
    middle = (first + last) // 2
    return (*groups[:place], (first, middle), (middle, last), *groups[place + 1 :])


def _pieces(plan: Plan, state: RoundState, number: int) -> list[Span]:
    """What a chunk was cut into, in order; most are whole."""
    span = plan.chunks[number].span
    inside = state.cuts[bisect_right(state.cuts, span.start) : bisect_left(state.cuts, span.end)]
    return [Span(start=start, end=end) for start, end in pairwise((span.start, *inside, span.end))]


def _chunk_at(plan: Plan, offset: int, first: int) -> int:
    """The number of the chunk that holds an offset, at or after `first`."""
    return bisect_right(range(len(plan.chunks)), offset, lo=first, key=lambda number: plan.chunks[number].end)
