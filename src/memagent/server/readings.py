"""Our own routes: readings, their events, and uploaded files."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Query, Request, Response, UploadFile
from fastapi.responses import FileResponse, StreamingResponse

from memagent.errors import ConfigError
from memagent.server.following import BEAT, follow
from memagent.server.schemas import AskRequest, ReadingRequest
from memagent.server.state import Keyed, Owner, Service, TheService, text_part
from memagent.server.values import Job, StoredFile

Limit = Annotated[int, Query(ge=1, le=1000)]
Once = Annotated[str | None, Header(min_length=1, max_length=200)]

routes = APIRouter(prefix="/v1", route_class=Keyed)


@routes.post("/readings", status_code=202)
async def begin(asked: ReadingRequest, service: TheService, owner: Owner, idempotency_key: Once = None) -> dict[str, Any]:
    """Begins a reading of uploaded files, paths below the root folder, or a text. Sent again with the same Idempotency-Key,
    it is the reading that was begun the first time."""
    if (asked.text is None) == (not asked.documents):
        raise ConfigError("give documents or a text, one of them")
    documents = asked.documents if asked.text is None else [text_part(asked.text)]
    job = Job(owner=owner, question=asked.question, options=asked.options.chosen())
    if idempotency_key is not None:
        digest = hashlib.sha256(asked.model_dump_json().encode()).hexdigest()
        job = replace(job, once=idempotency_key, digest=digest)
    begun = await asyncio.to_thread(service.store.begun, job)
    if begun is None:
        try:
            return shown(service, await service.begin(job, documents))
        except sqlite3.IntegrityError:  # the same request has come twice at a time
            begun = await asyncio.to_thread(service.store.begun, job)
    if begun is None or begun.digest != job.digest:
        raise HTTPException(409, "something else was asked with this Idempotency-Key: give each request one of its own")
    return shown(service, begun)


@routes.get("/readings")
async def history(service: TheService, owner: Owner, limit: Limit = 50, after: str = "") -> dict[str, Any]:
    """The newest readings, newest first; with `after`, those that come after the reading of that id."""
    last = await asyncio.to_thread(service.job, after, owner) if after else None
    jobs = await asyncio.to_thread(service.store.jobs, owner, limit + 1, last)
    return {"readings": [shown(service, job, brief=True) for job in jobs[:limit]], "has_more": len(jobs) > limit}


@routes.get("/readings/{id}")
async def look(id: str, service: TheService, owner: Owner) -> dict[str, Any]:
    """A reading: how far it is, or its result."""
    return shown(service, await asyncio.to_thread(service.job, id, owner))


@routes.get("/readings/{id}/events")
async def events(id: str, request: Request, service: TheService, owner: Owner) -> StreamingResponse:
    """Server-sent events: a "turn" for each finished turn, then "end". Last-Event-ID goes on after that turn."""
    job = await asyncio.to_thread(service.job, id, owner)
    given = request.headers.get("last-event-id", "")
    first = int(given) if given.isdecimal() and len(given) < 10 else 0
    return StreamingResponse(_events(service, job, first), media_type="text/event-stream")


@routes.post("/readings/{id}/cancel")
async def cancel(id: str, service: TheService, owner: Owner) -> dict[str, Any]:
    """Ends a reading that is not over."""
    job = await asyncio.to_thread(service.job, id, owner)
    return shown(service, await service.jobs.cancel(job))


@routes.post("/readings/{id}/resume", status_code=202)
async def resume(id: str, service: TheService, owner: Owner) -> dict[str, Any]:
    """Goes on with a reading that failed or was cancelled, from the turn that it had reached."""
    job = await asyncio.to_thread(service.job, id, owner)
    if job.status not in ("failed", "cancelled"):
        raise HTTPException(409, f"only a reading that failed or was cancelled can be resumed: this one is {job.status}")
    return shown(service, await service.jobs.resume(job))


@routes.delete("/readings/{id}", status_code=204)
async def delete(id: str, service: TheService, owner: Owner) -> Response:
    """Deletes a reading, its turns and the text that came with it, and ends it if it is not over. Uploaded files stay."""
    await service.delete(await asyncio.to_thread(service.job, id, owner))
    return Response(status_code=204)


@routes.post("/readings/{id}/ask", status_code=202)
async def ask(id: str, asked: AskRequest, service: TheService, owner: Owner) -> dict[str, Any]:
    """Asks another question of the memory that a reading ended with."""
    parent = await asyncio.to_thread(service.job, id, owner)
    options = {} if asked.json_schema is None else {"schema": asked.json_schema}
    return shown(service, await service.ask(parent, asked.question, options))


@routes.post("/files")
async def upload(file: UploadFile, service: TheService, owner: Owner) -> dict[str, Any]:
    """Keeps a document, to be read by its id."""
    return described(await asyncio.to_thread(service.keep, owner, file.filename or "document", file.file))


@routes.get("/files")
async def files(service: TheService, owner: Owner, limit: Limit = 1000, after: str = "") -> dict[str, Any]:
    """The documents that are kept, newest first; with `after`, those that come after the one of that id."""
    found = [described(one) for one in await asyncio.to_thread(service.store.files, owner)]
    if after:
        place = next((place for place, one in enumerate(found, 1) if one["id"] == after), None)
        if place is None:
            raise HTTPException(404, f"there is no file {after!r}")
        found = found[place:]
    return {"object": "list", "data": found[:limit], "has_more": len(found) > limit}


@routes.get("/files/{id}")
async def file_of(id: str, service: TheService, owner: Owner) -> dict[str, Any]:
    """A document that is kept, without its content."""
    return described(await _file(service, id, owner))


@routes.get("/files/{id}/content")
async def content_of(id: str, service: TheService, owner: Owner) -> FileResponse:
    """A document as it was uploaded."""
    file = await _file(service, id, owner)
    return FileResponse(service.store.path(file), filename=file.name, media_type="application/octet-stream")


@routes.delete("/files/{id}")
async def drop(id: str, service: TheService, owner: Owner) -> dict[str, Any]:
    """Deletes a document. Readings of it that are under way go on to their end, unless they are cancelled. Those that wait
    fail, and those that are over can be asked no more."""
    await asyncio.to_thread(service.store.drop, await _file(service, id, owner))
    return {"id": id, "object": "file", "deleted": True}


def described(file: StoredFile) -> dict[str, Any]:
    """A file in OpenAI's form."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": int(file.created),
        "filename": file.name,
        "purpose": "user_data",
    }


def shown(service: Service, job: Job, brief: bool = False) -> dict[str, Any]:
    """A job for its owner."""
    values = {
        "id": job.id,
        "status": job.status,
        "question": job.question,
        "created": job.created,
        "ended": job.ended,
        "parent": job.parent,
        "error": job.error,
    }
    if job.result is not None:
        return values | ({"answer": job.result["answer"]} if brief else {"result": job.result})
    return values | {"progress": service.jobs.look(job)}


async def _file(service: Service, id: str, owner: str) -> StoredFile:
    found = await asyncio.to_thread(service.store.file, id, owner)
    if found is None:
        raise HTTPException(404, f"there is no file {id!r}")
    return found


async def _events(service: Service, job: Job, first: int) -> AsyncIterator[str]:
    """The turns of a job from number `first` on, then its end."""
    memory = ""
    async for now, turns in follow(service, job, first):
        for entry in turns:
            changed, memory = entry.memory != memory, entry.memory
            values = {"turn": entry.number + 1, "kind": entry.kind, "outcome": entry.outcome}
            values |= service.jobs.look(now) | ({"memory": memory} if changed else {})
            yield _event("turn", values, entry.number + 1)
        if not turns:
            yield _event("end", shown(service, now)) if now.over else BEAT


def _event(kind: str, values: dict[str, Any], id: int | None = None) -> str:
    head = f"id: {id}\n" if id is not None else ""
    return f"{head}event: {kind}\ndata: {json.dumps(values)}\n\n"
