"""A single reading, prepared for looking at it turn by turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from memagent.core.spans import merged
from memagent.core.types import Span
from memagent.evaluation.diagnosis import VERDICTS, Diagnosis, diagnose
from memagent.evaluation.records import Record, RecordedTurn
from memagent.evaluation.report.text import Piece, excerpt, word_diff
from memagent.evaluation.summary import Row
from memagent.tasks.samples import Fact, Sample

_TURNS = 24  # the maximum number of turns shown for a reading
_PASSAGES = 12
_NUMBERED = 12  # up to this number of facts, there is room for their numbers
_SHOWS = ("update", "note")  # turns that show a part of the document and may record facts
_LABELS = {
    "shown": "shown",
    "change": "the memory changed",
    "fact": "needed fact {}",
    "kept": "fact {} kept",
    "lost": "fact {} lost",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A fact that came into the memory in a turn, or left it. `kind`: "kept", "kept again" or "lost"."""

    kind: str
    fact: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTurn:
    """A turn: what it showed (facts numbered from 1, text if the document is available), and the memory as a diff."""

    turn: RecordedTurn
    facts: tuple[int, ...]
    events: tuple[Event, ...]
    diff: tuple[Piece, ...]
    text: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Turns that are not shown; `changes` of them changed the memory."""

    turns: int
    changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A mark on the strip that represents the document, at `left` per cent of its length.

    `kind`: change, shown, fact, kept or lost. `text` has the numbers of the facts, `label` says it in words.
    """

    kind: str
    text: str
    left: float
    width: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingView:
    """A reading as the report shows it. `missing` says why there is no text of the document, if there is none."""

    record: Record
    row: Row
    diagnosis: Diagnosis
    verdict: str
    marks: tuple[Mark, ...]
    turns: tuple[ShownTurn | Gap, ...]
    passages: tuple[tuple[Span, tuple[Piece, ...]], ...]
    more_passages: int
    missing: str | None

    @property
    def right(self) -> bool:
        return self.row.score == 1


def view(record: Record, row: Row, sample: Sample | None, missing: str | None) -> ReadingView:
    """Prepares a reading. Without its sample the memory is shown, but no text of the document."""
    diagnosis = diagnose(record)
    needed = [trace.fact for trace in diagnosis.traces]
    passages = record.shown or ()
    return ReadingView(
        record=record,
        row=row,
        diagnosis=diagnosis,
        verdict="" if row.score == 1 else VERDICTS[diagnosis.verdict],
        marks=tuple(_strip(record, diagnosis)),
        turns=tuple(_turns(record, diagnosis, sample)),
        passages=tuple((span, _text(sample, span, needed)) for span in passages[:_PASSAGES]),
        more_passages=max(0, len(passages) - _PASSAGES),
        missing=missing,
    )


def _text(sample: Sample | None, span: Span, needed: list[Fact]) -> tuple[Piece, ...]:
    return tuple(excerpt(sample.document, span, needed)) if sample is not None else ()


def _turns(record: Record, diagnosis: Diagnosis, sample: Sample | None) -> Iterator[ShownTurn | Gap]:
    """The turns that showed a needed fact, moved one, changed the memory, or said more than an answer; then gaps."""
    needed = [trace.fact for trace in diagnosis.traces]
    memory, quiet, changes = "", 0, 0
    before: dict[int, str] = {}
    for turn in record.turns:
        before[turn.number] = memory
        memory = memory if turn.memory is None else turn.memory
    chosen = _chosen(record, diagnosis, before)
    for turn in record.turns:
        old = before[turn.number]
        new = old if turn.memory is None else turn.memory
        if turn.number not in chosen:
            quiet, changes = quiet + 1, changes + (new != old)
            continue
        if quiet:
            yield Gap(turns=quiet, changes=changes)
            quiet = changes = 0
        inside = record.shown is None and turn.kind in _SHOWS
        yield ShownTurn(
            turn=turn,
            facts=_facts_in(turn, diagnosis) if inside else (),
            events=tuple(_events(turn.number, diagnosis)),
            diff=tuple(word_diff(old, new)),
            text=tuple(piece for span in turn.spans for piece in _text(sample, span, needed)) if inside else (),
        )
    if quiet:
        yield Gap(turns=quiet, changes=changes)


def _chosen(record: Record, diagnosis: Diagnosis, before: dict[int, str]) -> set[int]:
    """Numbers of the turns to show: first those that matter to a fact, then changes, the earliest first."""
    ranked: list[tuple[int, int]] = []
    for turn in record.turns:
        moved = any(_events(turn.number, diagnosis))
        showed = record.shown is None and turn.kind in _SHOWS and bool(_facts_in(turn, diagnosis))
        changed = turn.memory is not None and turn.memory != before[turn.number]
        answered = turn.kind == "answer" and turn.reply is not None
        if moved or showed or changed or answered:
            ranked.append((0 if moved or answered else 1 if showed else 2, turn.number))
    return {number for _, number in sorted(ranked)[:_TURNS]}


def _facts_in(turn: RecordedTurn, diagnosis: Diagnosis) -> tuple[int, ...]:
    facts = enumerate((trace.fact for trace in diagnosis.traces), 1)
    return tuple(number for number, fact in facts if turn.shows(fact))


def _events(turn: int, diagnosis: Diagnosis) -> Iterator[Event]:
    for number, trace in enumerate(diagnosis.traces, 1):
        if turn in trace.gains:
            yield Event(kind="kept" if turn == trace.gains[0] else "kept again", fact=number)
        if turn in trace.losses:
            yield Event(kind="lost", fact=number)


def _strip(record: Record, diagnosis: Diagnosis) -> Iterator[Mark]:
    """The marks of the strip, in per cent of the document. Facts are numbered unless they are too many to be told apart."""
    size = max(1, record.characters)
    numbered = len(diagnosis.traces) <= _NUMBERED
    for kind, facts, span in _marks(record, diagnosis):
        left = min(100.0, 100 * span.start / size)
        width = min(100.0 - left, 100 * len(span) / size)
        names = ", ".join(map(str, facts))
        label = _LABELS[kind].format(names)
        yield Mark(kind=kind, text=names if numbered else "", left=round(left, 2), width=round(width, 2), label=label)


def _marks(record: Record, diagnosis: Diagnosis) -> Iterator[tuple[str, list[int], Span]]:
    """Passages shown, changes of the memory, needed facts, and where they were kept and lost, with the facts' numbers."""
    for span in record.shown or ():
        yield "shown", [], span
    followed = [turn for turn in record.turns if turn.kind != "answer" and turn.spans and record.shown is None]
    places = {turn.number: Span(start=turn.spans[0].start, end=turn.spans[-1].end) for turn in followed}
    changed = [span for turn in followed if turn.memory is not None for span in turn.spans]
    for span in merged(changed):
        yield "change", [], span
    moves: dict[tuple[int, str], list[int]] = defaultdict(list)
    for number, trace in enumerate(diagnosis.traces, 1):
        yield "fact", [number], Span(start=trace.fact.start, end=trace.fact.end)
        for kind, turns in (("kept", trace.gains), ("lost", trace.losses)):
            for turn in turns:
                moves[turn, kind].append(number)
    for turn, kind in sorted(moves):
        if turn in places:
            yield kind, moves[turn, kind], Span(start=places[turn].end, end=places[turn].end)
