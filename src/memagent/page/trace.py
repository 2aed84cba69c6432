"""One pass over the turns of a reading: what they cost, where the lines of the memory came from, how the memory changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memagent.core import Completion, LineOrigin
from memagent.core.outcomes import reply_text
from memagent.core.readers.kept import KeptReader
from memagent.errors import MemagentError
from memagent.journal import Journal, ReadingRecord, TurnEntry
from memagent.page.timeline import Follower, Timeline
from memagent.result import Ledger
from memagent.session import noted_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """`known` are the lines of the last memory of which it is known where they are from. `answers` are those of a reading
    for several questions, by their number from 0. `source` is the reading whose turns noted the memory of a follow-up,
    or ""; `lost` says why it is not known."""

    ledger: Ledger
    timeline: Timeline
    known: tuple[LineOrigin, ...]
    answers: Mapping[int, str]
    source: str = ""
    lost: str = ""


def traced(journal: Journal, record: ReadingRecord) -> Trace:
    """Follows a reading through its turns, and a follow-up through those of the reading that left its memory."""
    ledger, follower, answers = Ledger(), Follower(_option(record, "memory")), dict[int, str]()
    for entry in journal.turns(record.id):
        ledger.take(entry)
        follower.take(entry)
        answers |= _answers(entry)
    known, source, lost = ledger.origins, "", ""
    if record.settings.get("reader") == KeptReader.name:
        try:
            source = noted_by(journal, record.id)
            known = _noted(journal, source, _option(record, "memory"))
        except MemagentError as error:
            known, source, lost = (), "", str(error)
    return Trace(ledger=ledger, timeline=follower.timeline(), known=known, answers=answers, source=source, lost=lost)


def _noted(journal: Journal, id: str, memory: str) -> tuple[LineOrigin, ...]:
    """Where the lines of a memory are from that a reading left: as it was known when it had this memory. A reading that was
    extended since need not have that turn any more; then it is what is known of the lines that its last memory has."""
    ledger, before, known = Ledger(), None, None
    for entry in journal.turns(id):
        ledger.take(entry)
        if entry.memory == memory != before:
            known = ledger.origins
        before = entry.memory
    return ledger.origins if known is None else known


def _option(record: ReadingRecord, name: str) -> str:
    options = record.settings.get("reader_options")
    return str(options.get(name, "")) if isinstance(options, Mapping) else ""


def _answers(entry: TurnEntry) -> dict[int, str]:
    """The answers that a reading for several questions has after a turn, from its state, or else from the reply."""
    each: Any = (entry.state or {}).get("each")
    if isinstance(each, list):
        return {
            number: str(one["answer"]) for number, one in enumerate(each) if isinstance(one, Mapping) and one.get("answer")
        }
    head = entry.id.partition("/")[0].removeprefix("question-")
    if entry.outcome == "answered" and head.isdecimal():
        reply, _ = reply_text(Completion(text=str(entry.completion.get("text", ""))), "", False)
        return {int(head) - 1: reply}
    return {}
