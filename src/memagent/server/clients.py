"""What the routes of OpenAI share: models, files in messages, usage, and clients that wait and may go away."""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
from collections.abc import AsyncIterator
from typing import Any

from fastapi import HTTPException, Request

from memagent.conversation import Asked
from memagent.errors import ConfigError
from memagent.server.schemas import FilePart
from memagent.server.state import Part, Service, text_part
from memagent.server.values import Job

_CODES = {"document": 400, "model": 502, "deadline": 504, "cancelled": 409, "disk": 507}
_NO_RETRY = {"x-should-retry": "false"}  # or the client of OpenAI would have the document read twice more
_LOOK = 1.0  # seconds between two looks whether the client is still there


def names_of(service: Service) -> list[str]:
    """The models that clients may ask for: one, and one for each reader."""
    return ["memagent", *(f"memagent:{reader}" for reader in service.readers)]


def check_model(service: Service, model: str) -> None:
    """Raises HTTPException if a model is not one of ours."""
    if model not in names_of(service):
        raise HTTPException(404, f"there is no model {model!r}: see /v1/models")


def documents_of(asked: Asked[FilePart]) -> list[str | Part]:
    """The documents of a conversation. Raises ConfigError for a file that cannot be read from it."""
    return [text_part(asked.text)] if asked.text else [_document(file) for file in asked.files]


def _document(file: FilePart) -> str | Part:
    """The id of a file of a message, or the document that comes with it. Raises ConfigError if it is neither."""
    if file.file_id is not None:
        return file.file_id
    head, _, data = (file.file_data or "").rpartition("base64,")
    if not head or not data:
        raise ConfigError("a file part needs a file_id, or file_data as a data URL in base64")
    try:
        content = base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ConfigError(f"file_data is not base64: {error}") from None
    return Part(file.filename or "document", io.BytesIO(content))


async def awaited(request: Request, service: Service, job: Job) -> Job:
    """The job once it is over. If its client goes away, it is cancelled. Raises HTTPException if it has no answer, or the
    service ends."""
    waiting = asyncio.ensure_future(service.jobs.wait(job))
    while not (await asyncio.wait([waiting], timeout=_LOOK))[0]:
        if service.jobs.ending:
            waiting.cancel()
            raise HTTPException(503, later(job), _NO_RETRY)
        if await request.is_disconnected():
            await service.jobs.cancel(job)
    ended = waiting.result()
    if ended.result is None:
        raise HTTPException(_CODES.get(ended.kind or "", 500), ended.error or "no answer", _NO_RETRY)
    return ended


def later(job: Job) -> str:
    """What is said to those who wait when the service ends."""
    if not job.kept:
        return "the service ends, and the reading with it, because it was not to be stored: send it again"
    return f"the service ends; the reading {job.id} goes on when it starts again: look at /v1/readings/{job.id}"


async def attached(service: Service, job: Job, stream: AsyncIterator[str]) -> AsyncIterator[str]:
    """A stream whose client is waited for: if it goes away before the end, the job is cancelled."""
    ended = False
    try:
        async for part in stream:
            yield part
        ended = True
    finally:
        await asyncio.shield(settled(service, job, ended))


async def settled(service: Service, job: Job, ended: bool) -> None:
    """Cancels a job whose client went away before its end, and deletes one that is not kept."""
    if not ended:
        job = await service.jobs.cancel(job)
    if not job.kept and (found := await asyncio.to_thread(service.store.job, job.id, job.owner)) is not None:
        await service.delete(found)


def tokens(job: Job) -> tuple[int, int, int]:
    """What was asked of the model behind the service, turn by turn and for verification, not the length of the request:
    tokens in, tokens out, and those of the former that it had in its cache."""
    assert job.result is not None
    parts = (job.result["usage"], job.result["verification"])
    prompt, written, cached = (
        sum(part[name] for part in parts) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")
    )
    return prompt, written, cached


def own(job: Job) -> dict[str, Any]:
    """What OpenAI's form has no place for, of a job that was answered."""
    assert job.result is not None
    return {
        "reading": job.id,
        **{name: job.result[name] for name in ("status", "quotes", "unsupported", "turns", "share_read")},
    }
