"""OpenAI's routes of responses."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse

from memagent.conversation import asked, asked_again
from memagent.server.clients import attached, awaited, check_model, documents_of, settled
from memagent.server.responses import form
from memagent.server.responses.request import ResponseRequest
from memagent.server.responses.stream import events
from memagent.server.state import Keyed, Owner, Service, TheService
from memagent.server.values import Job

routes = APIRouter(prefix="/v1/responses", route_class=Keyed)


@routes.post("", response_model=None)
async def create(
    given: ResponseRequest, request: Request, service: TheService, owner: Owner
) -> JSONResponse | StreamingResponse:
    """Reads the long part of the input and answers its last question, or asks another of an earlier response's memory.

    The reading is cancelled if the client goes away, unless it is in the background.
    """
    job = await _begun(given, service, owner)
    if given.stream:
        stream = events(service, job)
        if not given.background:
            stream = attached(service, job, stream)
        return StreamingResponse(stream, media_type="text/event-stream")
    if given.background:
        return JSONResponse(form.response(service, job))
    try:
        ended = await awaited(request, service, job)
        return JSONResponse(await asyncio.to_thread(form.response, service, ended))
    finally:
        await asyncio.shield(settled(service, job, ended=True))


@routes.get("/{id}", response_model=None)
async def retrieve(
    id: str,
    service: TheService,
    owner: Owner,
    stream: bool = False,
    starting_after: Annotated[int, Query(ge=-1)] = -1,
) -> JSONResponse | StreamingResponse:
    """A response as it is now; or its events, those after the number `starting_after`."""
    job = await _job(service, id, owner)
    if stream:
        return StreamingResponse(events(service, job, starting_after), media_type="text/event-stream")
    return JSONResponse(await asyncio.to_thread(form.response, service, job))


@routes.post("/{id}/cancel")
async def cancel(id: str, service: TheService, owner: Owner) -> dict[str, Any]:
    """Ends a response in the background that is not over."""
    job = await _job(service, id, owner)
    if not form.background(job):
        raise HTTPException(
            400, "only a response in the background can be cancelled: this one ends when its client goes away"
        )
    return await asyncio.to_thread(form.response, service, await service.jobs.cancel(job))


@routes.delete("/{id}")
async def delete(id: str, service: TheService, owner: Owner) -> dict[str, Any]:
    """Deletes a response, with its reading and what came with its request, and ends it if it is not over."""
    await service.delete(await _job(service, id, owner))
    return {"id": id, "object": "response", "deleted": True}


@routes.get("/{id}/input_items")
async def input_items(id: str, service: TheService, owner: Owner) -> dict[str, Any]:
    """What was read, and what was asked, as one message."""
    item = await asyncio.to_thread(form.input_item, service, await _job(service, id, owner))
    return {"object": "list", "data": [item], "first_id": item["id"], "last_id": item["id"], "has_more": False}


async def _begun(given: ResponseRequest, service: Service, owner: str) -> Job:
    given.check()
    check_model(service, given.model)
    messages = [message.said() for message in given.messages()]
    options, repeated = given.options(), given.repeated()
    if given.previous_response_id is not None:
        parent = await _job(service, given.previous_response_id, owner)
        own = {name: value for name, value in options.items() if name == "schema"}
        return await service.ask(parent, asked_again(messages), own, repeated)
    what = asked(messages)
    return await service.begin(
        Job(owner=owner, question=what.question, options=options, request=repeated), documents_of(what)
    )


async def _job(service: Service, id: str, owner: str) -> Job:
    """The job that a response is. Raises HTTPException if this owner has none of that id."""
    found = await asyncio.to_thread(service.store.job, form.job_id(id), owner)
    if found is None or form.response_id(found.id) != id:
        raise HTTPException(404, f"there is no response {id!r}")
    return found
