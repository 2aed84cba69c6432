"""A job in the form of a response: computed from the job and its turns in the journal alone, so that it stays the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from memagent.errors import ConfigError
from memagent.server.clients import own, tokens
from memagent.server.following import line
from memagent.server.state import Service
from memagent.server.values import Job

_STATES = {"queued": "queued", "running": "in_progress", "failed": "failed", "cancelled": "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the turns of a reading that is over came to: a line for each, and of the answer its tokens, and whether it was
    cut at its limit."""

    lines: Sequence[str] = ()
    answer_tokens: int = 0
    cut: bool = False

    @property
    def text(self) -> str:
        return "".join(self.lines)


def response_id(job: str) -> str:
    """The id of the response that a job is."""
    return _named("resp", job)


def job_id(response: str) -> str:
    """The id of the job that a response is."""
    return f"reading-{response.removeprefix('resp_')}"


def _named(kind: str, job: str) -> str:
    return f"{kind}_{job.removeprefix('reading-')}"


def summary_of(service: Service, job: Job) -> Summary:
    """The summary of a job that is over."""
    lines, last = list[str](), None
    if job.reading is not None:
        for last in service.jobs.desk.journal.turns(job.reading):
            lines.append(line(last))
    if last is None:
        return Summary()
    answer: Mapping[str, Any] = last.completion
    return Summary(lines=lines, answer_tokens=answer["completion_tokens"], cut=answer["finish"] == "length")


def response(service: Service, job: Job) -> dict[str, Any]:
    """A job as it is now."""
    if job.over:
        return ended(service, job, summary_of(service, job))
    values = outline(job, _STATES[job.status])
    return values | {"memagent": values["memagent"] | service.jobs.look(job)}


def outline(job: Job, status: str) -> dict[str, Any]:
    """A response without output."""
    asked, options = job.request, job.options
    return {
        "id": response_id(job.id),
        "object": "response",
        "created_at": int(job.created),
        "completed_at": None,
        "status": status,
        "background": background(job),
        "error": None,
        "incomplete_details": None,
        "instructions": asked.get("instructions"),
        "max_output_tokens": options.get("answer_tokens"),
        "metadata": asked.get("metadata", {}),
        "model": asked.get("model", "memagent"),
        "output": [],
        "parallel_tool_calls": False,
        "previous_response_id": response_id(job.parent) if job.parent is not None else None,
        "store": job.kept,
        "temperature": options.get("temperature"),
        "text": asked.get("text", {"format": {"type": "text"}}),
        "tool_choice": "none",
        "tools": [],
        "top_p": options.get("top_p"),
        "truncation": "disabled",
        "usage": None,
        "memagent": {"reading": job.id},
    }


def background(job: Job) -> bool:
    """Whether a job goes on without its client. Those of other routes are taken for such."""
    return bool(job.request.get("background", True))


def ended(service: Service, job: Job, summary: Summary) -> dict[str, Any]:
    """The response that a job which is over is."""
    if job.result is None:
        code = "invalid_prompt" if job.kind == "document" else "server_error"
        return outline(job, _STATES[job.status]) | {"error": {"code": code, "message": job.error or "no answer"}}
    return outline(job, "incomplete" if summary.cut else "completed") | {
        "completed_at": None if summary.cut or job.ended is None else int(job.ended),
        "incomplete_details": {"reason": "max_output_tokens"} if summary.cut else None,
        "output": [reasoning(job, summary), message(service, job, summary)],
        "usage": _usage(job, summary),
        "memagent": own(job),
    }


def reasoning(job: Job, summary: Summary) -> dict[str, Any]:
    """The progress of a reading as an item of its response."""
    return {**new_reasoning(job), "summary": [{"type": "summary_text", "text": summary.text}]}


def new_reasoning(job: Job) -> dict[str, Any]:
    """The same before the first turn."""
    return {"id": _named("rs", job.id), "type": "reasoning", "summary": []}


def message(service: Service, job: Job, summary: Summary) -> dict[str, Any]:
    """The answer as an item of its response."""
    assert job.result is not None
    text = {**new_text(), "text": job.result["answer"], "annotations": citations(service, job)}
    return {**new_message(job), "status": "incomplete" if summary.cut else "completed", "content": [text]}


def new_message(job: Job) -> dict[str, Any]:
    """The same before its text."""
    return {"id": _named("msg", job.id), "type": "message", "role": "assistant", "status": "in_progress", "content": []}


def new_text() -> dict[str, Any]:
    """A text that is still empty."""
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def citations(service: Service, job: Job) -> list[dict[str, Any]]:
    """The quotes of an answer, as citations of files at its end; `memagent` in the response has the quotes themselves.

    A file that is not one of the documents (it is in a folder, or was deleted), or not the only one of its name, has its
    name for an id.
    """
    assert job.result is not None
    documents, end = named_documents(service, job), len(job.result["answer"])
    names = [name for _, name in documents]
    ids = {name: id for id, name in documents if names.count(name) == 1}
    return [
        {"type": "file_citation", "file_id": ids.get(quote["file"], quote["file"]), "filename": quote["file"], "index": end}
        for quote in job.result["quotes"]
    ]


def named_documents(service: Service, job: Job) -> list[tuple[str, str]]:
    """The documents of a job, and how their owner knows them; none if they were deleted."""
    with suppress(ConfigError):
        documents = service.jobs.desk.whole(job).documents
        files = ((id, service.store.file(id, job.owner)) for id in documents)
        return [(id, file.name if file is not None else id) for id, file in files]
    return []


def _usage(job: Job, summary: Summary) -> dict[str, Any]:
    """What is written besides the answer (memories, notes, verification) is reasoning."""
    prompt, written, cached = tokens(job)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": written - summary.answer_tokens},
        "total_tokens": prompt + written,
    }


def input_item(service: Service, job: Job) -> dict[str, Any]:
    """The input of a response as one message: the documents that were read for it, and the question."""
    files = [] if job.parent else named_documents(service, job)
    parts = [{"type": "input_file", "file_id": id, "filename": name} for id, name in files]
    text = {"type": "input_text", "text": job.question}
    item = {"id": _named("in", job.id), "type": "message", "role": "user", "status": "completed"}
    return {**item, "content": [*parts, text]}
