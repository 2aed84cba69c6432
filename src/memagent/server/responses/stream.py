"""The events of a response, numbered: four at its beginning, one for each turn, and those of its end.

They are computed from what is on disk, so that they are the same however often a client or the service comes back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeAlias

from memagent.server.following import BEAT, follow, line
from memagent.server.responses import form
from memagent.server.state import Service
from memagent.server.values import Job

_Event: TypeAlias = dict[str, Any]
_REASONING = {"output_index": 0, "summary_index": 0}
_TEXT = {"output_index": 1, "content_index": 0}


async def events(service: Service, job: Job, after: int = -1) -> AsyncIterator[str]:
    """The events of a response with a number above `after`, as server-sent events, until it ends or the service does."""
    async for numbered in _numbered(service, job, after):
        if numbered is None:
            yield BEAT
        elif numbered[0] > after:
            number, event = numbered
            yield f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"


async def _numbered(service: Service, job: Job, after: int) -> AsyncIterator[tuple[int, _Event] | None]:
    """The events with their numbers, of which at most some of the first are not above `after`; None: nothing new."""
    first = list(_first(job))
    opening = iter(enumerate(first))
    yield next(opening)
    async for now, turns in follow(service, job, max(0, after + 1 - len(first))):
        if now.status != "queued":
            for numbered in opening:
                yield numbered
        for turn in turns:
            yield len(first) + turn.number, _progress(job, line(turn))
        if not turns and now.over:
            for numbered in await asyncio.to_thread(_last, service, now, len(first)):
                yield numbered
        elif not turns:
            yield None


def _first(job: Job) -> Iterator[_Event]:
    item = form.new_reasoning(job)
    yield {"type": "response.created", "response": form.outline(job, "queued")}
    yield {"type": "response.in_progress", "response": form.outline(job, "in_progress")}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    part = {"type": "summary_text", "text": ""}
    yield {"type": "response.reasoning_summary_part.added", **_REASONING, "item_id": item["id"], "part": part}


def _progress(job: Job, line: str) -> _Event:
    item = form.new_reasoning(job)["id"]
    return {"type": "response.reasoning_summary_text.delta", **_REASONING, "item_id": item, "delta": line}


def _last(service: Service, job: Job, before: int) -> list[tuple[int, _Event]]:
    """The end of a job that is over; `before`: events before those of its turns."""
    summary = form.summary_of(service, job)
    response = form.ended(service, job, summary)
    output, kind = [], "failed"  # there is no event for what was cancelled
    if response["output"]:
        reasoning, message = response["output"]
        output, kind = [*_reasoned(reasoning), *_said(form.new_message(job), message)], response["status"]
    made = [*output, {"type": f"response.{kind}", "response": response}]
    return list(enumerate(made, before + len(summary.lines)))


def _reasoned(item: _Event) -> Iterator[_Event]:
    [part], of = item["summary"], {**_REASONING, "item_id": item["id"]}
    yield {"type": "response.reasoning_summary_text.done", **of, "text": part["text"]}
    yield {"type": "response.reasoning_summary_part.done", **of, "part": part}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}


def _said(new: _Event, item: _Event) -> Iterator[_Event]:
    [part], of = item["content"], {**_TEXT, "item_id": item["id"]}
    yield {"type": "response.output_item.added", "output_index": 1, "item": new}
    yield {"type": "response.content_part.added", **of, "part": form.new_text()}
    yield {"type": "response.output_text.delta", **of, "delta": part["text"], "logprobs": []}
    for index, citation in enumerate(part["annotations"]):
        added = {"annotation_index": index, "annotation": citation}
        yield {"type": "response.output_text.annotation.added", **of, **added}
    yield {"type": "response.output_text.done", **of, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **of, "part": part}
    yield {"type": "response.output_item.done", "output_index": 1, "item": item}
