"""Readings put into a journal by hand, so that anything can stand in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from memagent.documents import load
from memagent.grounding.verdict import Quote, Verdict
from memagent.journal import Journal, ReadingRecord, TurnEntry
from memagent.page.timeline import STEPS, Follower, Timeline

SETTINGS = {"model": "scripted", "identity": "scripted:1", "reader": "memory", "reader_options": {}, "together": []}
COST = {"prompt_tokens": 100, "completion_tokens": 10, "cached_tokens": 0, "seconds": 0.5}


def turn(number: int, memory: str, spans=(), outcome="kept", kind="update", text="", **more: Any) -> TurnEntry:
    return TurnEntry(
        number=number,
        id=more.pop("id", f"{kind}-{number}"),
        kind=kind,
        outcome=outcome,
        spans=tuple(spans),
        memory=memory,
        completion={"text": text or memory, "finish": "stop", "reasoning": False, **COST},
        **more,
    )


def quoted(document: Any, text: str, number: int = 0) -> Quote:
    """The quote of the first place where a text stands."""
    whole = document.read(0, len(document))
    start = whole.index(text)
    where = document.locate(start)
    return Quote(
        cited_text=text,
        start_char_index=start,
        end_char_index=start + len(text),
        file=where.file,
        page=where.page,
        place=str(where),
        turn=number,
        alignment="exact",
    )


def stored(
    journal: Journal,
    paths: Sequence[Path],
    memories: Sequence[str],
    *,
    question: str = "What is the code?",
    answer: str | None = None,
    quotes: Sequence[str] = (),
    verdict: Mapping[str, Any] | None = None,
    reason: str | None = None,
    settings: Mapping[str, Any] | None = None,
    described: Mapping[str, Any] | None = None,
    last: Sequence[TurnEntry] | None = None,
) -> ReadingRecord:
    """A reading of files in as many chunks as it has memories; the turn of the answer follows."""
    with load(list(paths)) as document:
        size, count = len(document), max(1, len(memories))
        values = {
            "digest": document.digest,
            "characters": size,
            "tokens": size // 4,
            "files": [{"name": file.name, "kind": file.kind, "bytes": file.bytes} for file in document.files],
            "skipped": [],
            "paths": [str(path) for path in paths],
            "encoding": None,
            **(described or {}),
        }
        id = journal.start(
            question=question, settings={**SETTINGS, **(settings or {})}, document=values, plan_digest="", planned=count + 1
        )
        spans = [((size * place // count, size * (place + 1) // count),) for place in range(count)]
        for number, memory in enumerate(memories):
            before = memories[number - 1] if number else ""
            journal.append(id, turn(number, memory, spans[number], "kept" if memory != before else "skipped"))
        final = [turn(len(memories), memories[-1] if memories else "", (), "answered", "answer", answer or "")]
        for entry in (final if answer else []) if last is None else last:
            journal.append(id, entry)
        if answer is not None:
            journal.finish(id, answer, 1.5)
        if quotes or verdict is not None:
            made = Verdict(status="supported", quotes=tuple(quoted(document, one) for one in quotes))
            usage = {"calls": 1, "prompt_tokens": 5, "completion_tokens": 2, "cached_tokens": 0, "seconds": 0.1}
            journal.verified(id, [{**made.to_json(), "usage": usage, **(verdict or {})}])
    if reason is not None:
        journal.fail(id, reason)
    return journal.show(id)


def timeline(entries: Iterable[TurnEntry], memory: str = "", limit: int = STEPS) -> Timeline:
    """The timeline of a reading that began with `memory`."""
    follower = Follower(memory, limit)
    for entry in entries:
        follower.take(entry)
    return follower.timeline()
