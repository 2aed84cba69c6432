"""From a reading in the journal and its document to the values of its page."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from memagent import stored
from memagent.core import Span
from memagent.documents import Document
from memagent.grounding.verdict import Quote, Verdict
from memagent.journal import Journal, ReadingRecord
from memagent.page.diff import compared
from memagent.page.origins import Origin, origins
from memagent.page.passages import Mark, blocks
from memagent.page.regions import at_words, placed, regions
from memagent.page.source import Source, reopened
from memagent.page.timeline import Step
from memagent.page.trace import Trace, traced
from memagent.page.view import LineView, Link, PageView, QuestionView, QuoteView, ShownView, StepView
from memagent.result import indented

QUOTES = 200  # the maximum on a page
LINES = 200  # lines of the last memory, with their origins
_PLACES = 3  # places that are listed of those that a turn showed
_LEAD = 400  # characters at the beginning of what a turn showed, for a line whose words do not stand in it
_NAMES = 20  # files of the document that are listed


def page_of(journal: Journal, record: ReadingRecord, opened: Callable[[], Document] | None = None) -> PageView:
    """The page of a reading. Raises JournalError; a document that cannot be shown is no error.

    `opened` loads the document, where the paths in the journal do not.
    """
    trace = traced(journal, record)
    with reopened(record, opened) as source:
        return _page(record, trace, source)


def _page(record: ReadingRecord, trace: Trace, source: Source) -> PageView:
    document, verdicts = source.document, stored.verdicts(record)
    timeline = trace.timeline
    quotes = [quote for verdict in verdicts for quote in verdict.quotes][:QUOTES]
    found, more_lines = origins(timeline.memory, trace.known, source, LINES)
    shown = _regions(source, quotes, found)
    views = _quote_views(quotes, source, shown, trace)
    lines = tuple(_line(number, one, document, shown, trace) for number, one in enumerate(found, 1))
    steps = tuple(_step(step, document, shown) for step in (*timeline.steps, *timeline.later))
    files = stored.listed(record.document.get("files"))
    return PageView(
        record=record,
        trace=trace,
        questions=_questions(record, trace, verdicts, views),
        lines=lines,
        more_lines=more_lines,
        steps=steps,
        verification=stored.verification(record),
        share_read=min(1.0, trace.ledger.characters_read / max(1, source.size)),
        model=str(record.settings.get("model", "")),
        identity=str(record.settings.get("identity", "")),
        reader=str(record.settings.get("reader", "")),
        names=tuple(str(one.get("name", "")) for one in files[:_NAMES]),
        more_names=max(0, len(files) - _NAMES),
        broken=sum(bool(one.get("broken")) for one in stored.listed(record.document.get("skipped"))),
        characters=source.size,
        tokens=stored.number(record.document.get("tokens")),
        note=source.note,
        blocks=_blocks(source, shown, quotes, views, lines, steps),
        ticks=_ticks(source, quotes, views, lines),
    )


def _regions(source: Source, quotes: Sequence[Quote], lines: Sequence[Origin]) -> list[Span]:
    if source.document is None:
        return []
    cited = [_span(quote) for quote in quotes if _stands(quote, source)]
    found = [one.span for one in lines if one.span and one.found]
    others = [Span(start=one.span.start, end=min(one.span.end, one.span.start + _LEAD)) for one in lines if one.span]
    shown = regions(source.size, cited, [*found, *others])
    return at_words(source.document, source.size, shown, [*cited, *found])


def _stands(quote: Quote, source: Source) -> bool:
    """Whether a quote stands where the journal says."""
    start, end = quote.start_char_index, quote.end_char_index
    inside = source.document is not None and 0 <= start < end <= source.size and end - start == len(quote.cited_text)
    return inside and source.document is not None and source.document.read(start, end) == quote.cited_text


def _span(quote: Quote) -> Span:
    return Span(start=quote.start_char_index, end=quote.end_char_index)


def _quote_views(quotes: Sequence[Quote], source: Source, shown: Sequence[Span], trace: Trace) -> list[QuoteView]:
    return [
        QuoteView(
            number=number,
            text=quote.cited_text,
            place=quote.place,
            turn=quote.turn,
            alignment=quote.alignment,
            score=quote.score,
            field=quote.field or "",
            held=_stands(quote, source) and placed(_span(quote), shown) == _span(quote),
            step=_step_of(quote.turn, trace),
        )
        for number, quote in enumerate(quotes, 1)
    ]


def _questions(
    record: ReadingRecord, trace: Trace, verdicts: Sequence[Verdict], views: Sequence[QuoteView]
) -> tuple[QuestionView, ...]:
    """The questions; the quotes of all of them are numbered through, and at most QUOTES are on the page."""
    together: Any = record.settings.get("together") or ()
    asked = [(text, trace.answers.get(number)) for number, text in enumerate(together)] or [
        (record.question, _readable(record))
    ]
    made, done = list[QuestionView](), 0
    for number, (question, answer) in enumerate(asked):
        verdict = verdicts[number] if number < len(verdicts) else None
        count = len(verdict.quotes) if verdict else 0
        own = tuple(views[done : done + count])
        made.append(
            QuestionView(question=question, answer=answer, verdict=verdict, quotes=own, more_quotes=count - len(own))
        )
        done += count
    return tuple(made)


def _readable(record: ReadingRecord) -> str | None:
    """The answer as people read it: JSON on several lines."""
    if not record.settings.get("schema") or not record.answer:
        return record.answer
    try:
        return indented(json.loads(record.answer))
    except ValueError:
        return record.answer


def _line(number: int, origin: Origin, document: Document | None, shown: Sequence[Span], trace: Trace) -> LineView:
    span, line = origin.span, origin.line
    return LineView(
        number=number,
        text=origin.text,
        turn=line.turn if line else None,
        place=_place(span, document) if span else "",
        link=_link(span, shown) if span else None,
        found=origin.found,
        step=_step_of(line.turn, trace) if line else None,
    )


def _step(step: Step, document: Document | None, shown: Sequence[Span]) -> StepView:
    places = tuple(ShownView(place=_place(one, document), link=_link(one, shown)) for one in step.spans[:_PLACES])
    lines = tuple(compared(step.before, step.after)) if step.changed else ()
    return StepView(step=step, shown=places, more_shown=max(0, len(step.spans) - _PLACES), lines=lines)


def _step_of(turn: int, trace: Trace) -> int | None:
    """The step of the timeline that a turn is in; None for a turn of another reading."""
    step = None if trace.source or trace.lost else trace.timeline.holding(turn)
    return step.first if step else None


def _place(span: Span, document: Document | None) -> str:
    if document is None or span.start > len(document):
        return f"characters {span.start:,}–{span.end:,}"
    return str(document.locate(span.start))


def _link(span: Span, shown: Sequence[Span]) -> Link | None:
    here = placed(span, shown)
    return Link(start=here.start, end=here.end) if here else None


def _blocks(
    source: Source,
    shown: Sequence[Span],
    quotes: Sequence[Quote],
    views: Sequence[QuoteView],
    lines: Sequence[LineView],
    steps: Sequence[StepView],
) -> Any:
    if source.document is None:
        return None
    marks = [Mark(number=view.number, span=_span(quote)) for quote, view in zip(quotes, views, strict=True) if view.held]
    links = [line.link for line in lines] + [place.link for step in steps for place in step.shown]
    for line in lines:
        if line.found and line.link:
            marks.append(Mark(number=line.number, span=Span(start=line.link.start, end=line.link.end), line=True))
    anchors = [edge for link in links if link for edge in (link.start, link.end)]
    return tuple(blocks(source.document, source.size, shown, marks, anchors))


def _ticks(
    source: Source, quotes: Sequence[Quote], views: Sequence[QuoteView], lines: Sequence[LineView]
) -> tuple[tuple[str, int, float], ...]:
    size = max(1, source.size)
    held = [(quote, view) for quote, view in zip(quotes, views, strict=True) if view.held]
    ticks = [("line", line.number, line.link.start / size) for line in lines if line.link]
    return (*(("quote", view.number, quote.start_char_index / size) for quote, view in held), *ticks)
