"""One pass over the turns of a reading: what they cost, where the lines of the memory came from, how the memory changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memagent.core import Completion, Provenance
from memagent.core.outcomes import reply_text
from memagent.core.readers.kept import KeptReader
from memagent.errors import MemagentError
from memagent.journal import Journal, ReadingRecord, TurnEntry
from memagent.page.timeline import Follower, Timeline
from memagent.result import Ledger
from memagent.session import ledger_of, noted_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """`answers` are those of a reading for several questions, by their number from 0. `source` is the reading whose turns
    noted the memory of a follow-up, or ""; `lost` says why it is not known."""

    ledger: Ledger
    timeline: Timeline
    answers: Mapping[int, str]
    source: str = ""
    lost: str = ""


def traced(journal: Journal, record: ReadingRecord) -> Trace:
    """Follows a reading through its turns, and a follow-up through those of the reading that left its memory."""
    source, lost, provenance = "", "", Provenance()
    if record.settings.get("reader") == KeptReader.name:
        try:
            source = noted_by(journal, record.id)
            provenance = ledger_of(journal, source).provenance
        except MemagentError as error:
            source, lost = "", str(error)
    ledger, follower, answers = Ledger(provenance), Follower(_option(record, "memory")), dict[int, str]()
    for entry in journal.turns(record.id):
        ledger.take(entry)
        follower.take(entry)
        answers |= _answers(entry)
    return Trace(ledger=ledger, timeline=follower.timeline(), answers=answers, source=source, lost=lost)


def _option(record: ReadingRecord, name: str) -> str:
    options = record.settings.get("reader_options")
    return str(options.get(name, "")) if isinstance(options, Mapping) else ""


def _answers(entry: TurnEntry) -> dict[int, str]:
    """The answers that a reading for several questions has after a turn, from its state, or else from the reply."""
    each: Any = (entry.state or {}).get("each")
    if isinstance(each, list):
        return {number: one["answer"] for number, one in enumerate(each) if one.get("answer")}
    head = entry.id.partition("/")[0].removeprefix("question-")
    if entry.outcome == "answered" and head.isdecimal():
        reply, _ = reply_text(Completion(text=str(entry.completion.get("text", ""))), "", False)
        return {int(head) - 1: reply}
    return {}
