"""What a page says of a reading, as values. The template puts them into words and HTML."""

from __future__ import annotations

from dataclasses import dataclass

from memagent.core.types import Usage
from memagent.grounding.verdict import Verdict
from memagent.journal import ReadingRecord
from memagent.page.diff import Line
from memagent.page.passages import Block
from memagent.page.timeline import Step
from memagent.page.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Characters of the document that are on the page, to be linked to."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteView:
    """A quote; `number` counts those of the page from 1. `field`: of an answer that is JSON, what it is for.

    `held`: it stands on the page, at its place in the document. `step`: the turn with which the step of the timeline begins
    that noted it, if it is on the page.
    """

    number: int
    text: str
    place: str
    turn: int
    alignment: str
    score: float
    field: str
    held: bool
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionView:
    """A question, its answer (None: there is none), what verification came to (None: nothing), and its quotes."""

    question: str
    answer: str | None
    verdict: Verdict | None
    quotes: tuple[QuoteView, ...] = ()
    more_quotes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LineView:
    """A line of the last memory and where it came from. `turn` is None if that is not known. `found`: its words stand at
    the link, which else is to all that its turn showed."""

    number: int
    text: str
    turn: int | None
    place: str
    link: Link | None = None
    found: bool = False
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownView:
    """A place that a turn showed."""

    place: str
    link: Link | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step of the timeline; `lines` compare the memory after it with the one before."""

    step: Step
    shown: tuple[ShownView, ...]
    more_shown: int
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """A page. `record` is what the journal has of the reading, `trace` what its turns say.

    `ticks` are places in the document, from 0 to 1, of quotes and of lines of the memory, with their numbers.
    """

    record: ReadingRecord
    trace: Trace
    questions: tuple[QuestionView, ...]
    lines: tuple[LineView, ...]
    more_lines: int
    steps: tuple[StepView, ...]
    verification: Usage
    share_read: float
    model: str
    identity: str
    reader: str
    names: tuple[str, ...]
    more_names: int
    broken: int
    characters: int
    tokens: int
    note: str
    blocks: tuple[Block, ...] | None
    ticks: tuple[tuple[str, int, float], ...]
