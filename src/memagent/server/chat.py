"""OpenAI's routes: models and chat completions, for clients that know nothing of readings."""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse

from memagent.conversation import asked
from memagent.errors import ConfigError
from memagent.server.jobs import moved
from memagent.server.schemas import ChatRequest, FilePart
from memagent.server.state import Owner, Part, Service, TheService, text_part
from memagent.server.values import Job

routes = APIRouter(prefix="/v1")
_CODES = {"document": 400, "model": 502, "deadline": 504, "cancelled": 409}
_LOOK = 1.0  # seconds between two looks whether the client is still there


@routes.get("/models")
async def models(service: TheService, owner: Owner) -> dict[str, Any]:
    """One model, and one for each reader."""
    names = ["memagent", *(f"memagent:{reader}" for reader in service.readers)]
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": "memagent"} for name in names],
    }


@routes.post("/chat/completions", response_model=None)
async def complete(
    chat: ChatRequest, request: Request, service: TheService, owner: Owner
) -> JSONResponse | StreamingResponse:
    """Reads the long part of a conversation and answers its last question.

    The reading is cancelled if the client goes away. `memagent` in the response has its id, status and quotes.
    """
    if chat.model.partition(":")[0] != "memagent" or chat.model.partition(":")[2] not in ("", *service.readers):
        raise HTTPException(404, f"there is no model {chat.model!r}: see /v1/models")
    what = asked([message.said() for message in chat.messages])
    documents = [text_part(what.text)] if what.text else [_document(file) for file in what.files]
    job = await service.begin(Job(owner=owner, question=what.question, options=chat.options()), documents)
    if chat.stream:
        return StreamingResponse(_stream(chat, service, job), media_type="text/event-stream")
    return JSONResponse(_completion(chat, await _over(request, service, job)))


async def _over(request: Request, service: Service, job: Job) -> Job:
    """The job once it is over. Raises HTTPException if it has no answer."""
    waiting = asyncio.ensure_future(service.jobs.wait(job))
    while not (await asyncio.wait([waiting], timeout=_LOOK))[0]:
        if await request.is_disconnected():
            await service.jobs.cancel(job)
    ended = waiting.result()
    if ended.result is None:
        raise HTTPException(_CODES.get(ended.kind or "", 500), ended.error or "no answer")
    return ended


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


def _completion(chat: ChatRequest, job: Job) -> dict[str, Any]:
    assert job.result is not None
    message = {"role": "assistant", "content": job.result["answer"], "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    head = _head(chat, job, "chat.completion")
    return {**head, "choices": [choice], "usage": _usage(job), "memagent": _own(job)}


def _head(chat: ChatRequest, job: Job, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{job.id}", "object": kind, "created": int(job.created), "model": chat.model}


def _usage(job: Job) -> dict[str, Any]:
    """What was asked of the model behind the service, turn by turn and for verification: not the length of the request."""
    assert job.result is not None
    parts = (job.result["usage"], job.result["verification"])
    prompt, written, cached = (
        sum(part[name] for part in parts) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")
    )
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _own(job: Job) -> dict[str, Any]:
    assert job.result is not None
    return {
        "reading": job.id,
        **{name: job.result[name] for name in ("status", "quotes", "unsupported", "turns", "share_read")},
    }


async def _stream(chat: ChatRequest, service: Service, job: Job) -> AsyncIterator[str]:
    """Progress as reasoning, then the answer. A client that goes away ends the stream, and so the reading."""
    head, ended = _head(chat, job, "chat.completion.chunk"), False

    def chunk(delta: dict[str, Any], **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": more.pop("finish", None), "logprobs": None}
        return f"data: {json.dumps({**head, 'choices': [choice], **more})}\n\n"

    try:
        yield chunk({"role": "assistant", "content": ""})
        last, began = -1, time.monotonic()
        while True:
            signal = service.jobs.signal(job)
            job = await asyncio.to_thread(service.job, job.id, job.owner)
            if job.over or service.jobs.ending:
                break
            done = service.jobs.look(job)
            if done and done["turns"] != last:
                last = done["turns"]
                said = f"turn {last} of {last + done['left']}, {time.monotonic() - began:.0f} s\n"
                yield chunk({"reasoning_content": said, "reasoning": said})
            await moved(signal, _LOOK)
        ended = True
        if job.result is None:
            said = job.error or f"the service ends; the reading {job.id} goes on when it starts again"
            error = {"message": said, "type": f"{job.kind or 'server'}_error", "param": None, "code": None}
            yield f"data: {json.dumps({'error': error})}\n\n"
            return
        yield chunk({"content": job.result["answer"]})
        yield chunk({}, finish="stop", memagent=_own(job))
        if chat.stream_options.include_usage:
            yield f"data: {json.dumps({**head, 'choices': [], 'usage': _usage(job)})}\n\n"
        yield "data: [DONE]\n\n"
    finally:
        if not ended:
            await asyncio.shield(service.jobs.cancel(job))
