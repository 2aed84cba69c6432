"""What the page says of jobs, as values. The template puts them into HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from memagent.errors import ConfigError
from memagent.grounding.words import Meaning, meaning
from memagent.server.schemas import QUESTION
from memagent.server.state import Service
from memagent.server.store import is_kept
from memagent.server.values import Job
from memagent.server.web.forms import usual_reader

_QUOTES = 50  # the maximum in the answer; the page of the reading has more
_NAMES = 5  # names of documents that are listed
_STATES = {
    "queued": Meaning("plain", "Waiting", "Waiting"),
    "running": Meaning("plain", "Reading", "Reading"),
    "failed": Meaning("bad", "Failed", "Failed"),
    "cancelled": Meaning("plain", "Cancelled", "Cancelled"),
}
_READERS = {
    "auto": "choose by the document",
    "memory": "chunk by chunk, with a memory",
    "gated": "as memory, passing over what is not relevant",
    "parallel": "all chunks at once",
    "search": "what matches the question and what was found",
    "reread": "as memory, and again if something is missing",
    "recall": "as memory, and look back at earlier memories",
    "append": "chunk by chunk, adding notes",
    "direct": "the whole document at once, if it fits",
    "retrieve": "the passages that match best",
    "truncate": "beginning and end only",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the history. `meant` is what its state means, or what verification said of its answer."""

    job: Job
    meant: Meaning
    created: str
    names: tuple[str, ...]
    more_names: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The reading that is looked at. `quotes` and `result` are there once it was answered, `look` before that."""

    row: Row
    reader: str
    look: Mapping[str, Any]
    result: Mapping[str, Any]
    quotes: Sequence[Mapping[str, Any]]
    more_quotes: int
    parent: Job | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The page. `owner` is "" where no keys are needed; `typed` is what stood in a form that was refused with `error`."""

    owner: str
    readers: Sequence[tuple[str, str]]
    usual: str
    limit: int
    question_limit: int
    rows: Sequence[Row]
    more: int
    looked: Looked | None = None
    typed: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


def home_of(
    service: Service, owner: str, show: int, job: Job | None = None, typed: Mapping[str, str] | None = None, error: str = ""
) -> Home:
    """The page of a key with its newest readings, `show` of them."""
    jobs = service.store.jobs(owner, show + 1)
    return Home(
        owner=owner if service.keys is not None else "",
        readers=[(name, _READERS.get(name, "")) for name in service.readers],
        usual=usual_reader(service),
        limit=service.limits.upload_bytes,
        question_limit=QUESTION,
        rows=[_row(service, one) for one in jobs[:show]],
        more=show * 4 if len(jobs) > show else 0,
        looked=_looked(service, job) if job else None,
        typed=typed or {},
        error=error,
    )


def _row(service: Service, job: Job) -> Row:
    names, more = _names(service, job)
    return Row(
        job=job,
        meant=_STATES.get(job.status) or meaning((job.result or {}).get("status")),
        created=datetime.fromtimestamp(job.created, UTC).strftime("%Y-%m-%dT%H:%MZ"),
        names=names,
        more_names=more,
    )


def _names(service: Service, job: Job) -> tuple[tuple[str, ...], int]:
    """The first names of a job's documents, as those who uploaded them know them, and how many more there are."""
    try:
        documents = service.jobs.desk.whole(job).documents
    except ConfigError:
        return ("a deleted reading",), 0
    first = [(name, service.store.file(name, job.owner)) for name in documents[:_NAMES]]
    names = (file.name if file else "a deleted file" if is_kept(name) else name for name, file in first)
    return tuple(names), max(0, len(documents) - _NAMES)


def _looked(service: Service, job: Job) -> Looked:
    result: Mapping[str, Any] = job.result or {}
    quotes = result.get("quotes") or ()
    return Looked(
        row=_row(service, job),
        reader="" if job.parent else str(job.options.get("reader") or usual_reader(service)),
        look=service.jobs.look(job),
        result=result,
        quotes=quotes[:_QUOTES],
        more_quotes=max(0, len(quotes) - _QUOTES),
        parent=service.store.job(job.parent, job.owner) if job.parent else None,
    )
