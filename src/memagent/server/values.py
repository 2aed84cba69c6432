"""What the service keeps: jobs and uploaded files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

JobStatus: TypeAlias = Literal["queued", "running", "answered", "failed", "cancelled"]
ENDED: tuple[JobStatus, ...] = ("answered", "failed", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the service accepts. Everything that clients can make large has a limit here.

    readings        readings under way at the same time; `readings_per_key` of one key
    queue           jobs that wait, beyond which new ones are refused (429); `queue_per_key` of one key
    upload_bytes    bytes of a request's body, and so of a document that is uploaded
    files_per_key   uploaded files that are kept
    stored_bytes    bytes of documents of a key that are kept: uploaded files, and those that came with requests. A document
                    that is accepted below the limit may exceed it
    tokens_per_day  tokens in and out of a key on a day (UTC); None: no limit. A reading that has begun may exceed it
    patience        seconds for which a reading waits for a model's server that is away, or for room on the disk, before it
                    fails
    deadline        seconds after which a reading is given up; None: never
    keep_days       days after which a reading that is over is deleted, with the text that came with it; None: never
    """

    readings: int = 8
    readings_per_key: int = 8
    queue: int = 1000
    queue_per_key: int = 1000
    upload_bytes: int = 256 << 20
    files_per_key: int = 1000
    stored_bytes: int = 10 << 30
    tokens_per_day: int | None = None
    patience: float = 600.0
    deadline: float | None = None
    keep_days: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A document that was uploaded. `owner` is the name of the key it came with."""

    id: str
    owner: str
    name: str
    bytes: int
    created: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A reading that was asked for.

    id, created  given when it is accepted
    documents    ids of uploaded files, or paths below the root folder; () for a follow-up
    options      options of the reading, as in `ReadingOptions`
    parent       the job whose memory answers a follow-up
    request      what a response repeats of its request; {}: it was asked for by another route than /v1/responses
    once         what its client calls the request, so that it is not accepted twice; `digest` that of the request
    reading      its id in the journal, once it has begun
    result       what `Reading.to_json` gave, once it was answered
    error        why there is no answer, and the `kind` of that: document, model, deadline, disk, cancelled or internal
    """

    id: str = ""
    owner: str
    created: float = 0.0
    question: str
    documents: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    parent: str | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    once: str | None = None
    digest: str | None = None
    status: JobStatus = "queued"
    reading: str | None = None
    ended: float | None = None
    result: Mapping[str, Any] | None = None
    error: str | None = None
    kind: str | None = None

    @property
    def over(self) -> bool:
        return self.status in ENDED

    @property
    def kept(self) -> bool:
        """Whether it stays once its client has the answer, or went away."""
        return bool(self.request.get("store", True))
