"""OpenAI's routes: models and chat completions, for clients that know nothing of readings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, StreamingResponse

from memagent.conversation import asked
from memagent.server.clients import attached, awaited, check_model, documents_of, later, names_of, own, tokens
from memagent.server.following import BEAT, follow, line
from memagent.server.responses.form import summary_of
from memagent.server.schemas import ChatRequest
from memagent.server.state import Keyed, Owner, Service, TheService
from memagent.server.values import Job

routes = APIRouter(prefix="/v1", route_class=Keyed)


@routes.get("/models")
async def models(service: TheService, owner: Owner) -> dict[str, Any]:
    """One model, and one for each reader."""
    return {"object": "list", "data": [_model(name) for name in names_of(service)]}


@routes.get("/models/{name}")
async def model(name: str, service: TheService, owner: Owner) -> dict[str, Any]:
    """One of them."""
    check_model(service, name)
    return _model(name)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "memagent"}


@routes.post("/chat/completions", response_model=None)
async def complete(
    chat: ChatRequest, request: Request, service: TheService, owner: Owner
) -> JSONResponse | StreamingResponse:
    """Reads the long part of a conversation and answers its last question.

    The reading is cancelled if the client goes away. `memagent` in the response has its id, status and quotes.
    """
    check_model(service, chat.model)
    chat.check()
    what = asked([message.said() for message in chat.messages])
    job = await service.begin(Job(owner=owner, question=what.question, options=chat.options()), documents_of(what))
    if chat.stream:
        return StreamingResponse(attached(service, job, _stream(chat, service, job)), media_type="text/event-stream")
    job = await awaited(request, service, job)
    return JSONResponse(_completion(chat, job, await asyncio.to_thread(_finish, service, job)))


def _finish(service: Service, job: Job) -> str:
    """Why the answer ended, in OpenAI's words."""
    return "length" if summary_of(service, job).cut else "stop"


def _completion(chat: ChatRequest, job: Job, finish: str) -> dict[str, Any]:
    assert job.result is not None
    message = {"role": "assistant", "content": job.result["answer"], "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    head = _head(chat, job, "chat.completion")
    return {**head, "choices": [choice], "usage": _usage(job), "memagent": own(job)}


def _head(chat: ChatRequest, job: Job, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{job.id}", "object": kind, "created": int(job.created), "model": chat.model}


def _usage(job: Job) -> dict[str, Any]:
    prompt, written, cached = tokens(job)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


async def _stream(chat: ChatRequest, service: Service, job: Job) -> AsyncIterator[str]:
    """Each turn as reasoning, then the answer."""
    head = _head(chat, job, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": more.pop("finish", None), "logprobs": None}
        return f"data: {json.dumps({**head, 'choices': [choice], **more})}\n\n"

    yield chunk({"role": "assistant", "content": ""})
    async for now, turns in follow(service, job, 0):
        job, done = now, service.jobs.look(now)
        for turn in turns:
            said = line(turn, done["turns"] + done["left"] if done else None)
            yield chunk({"reasoning_content": said, "reasoning": said})
        if not turns and not job.over:
            yield BEAT
    if job.result is None:
        said = job.error or (later(job) if service.jobs.ending else f"the reading {job.id} was deleted")
        error = {"message": said, "type": f"{job.kind or 'server'}_error", "param": None, "code": None}
        yield f"data: {json.dumps({'error': error})}\n\n"
        return
    yield chunk({"content": job.result["answer"]})
    yield chunk({}, finish=await asyncio.to_thread(_finish, service, job), memagent=own(job))
    if chat.stream_options is not None and chat.stream_options.include_usage:
        yield f"data: {json.dumps({**head, 'choices': [], 'usage': _usage(job)})}\n\n"
    yield "data: [DONE]\n\n"
