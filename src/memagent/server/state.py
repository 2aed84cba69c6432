"""What the routes share: the service, and who asks."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Annotated, Any, BinaryIO

from fastapi import Depends, HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json

from memagent.errors import ConfigError
from memagent.server import log
from memagent.server.cookie import key_in_cookie
from memagent.server.jobs import Jobs, RefusedError
from memagent.server.keys import LOCAL, Keys
from memagent.server.metrics import Metrics
from memagent.server.store import Store
from memagent.server.values import Job, Limits, StoredFile


@dataclass(frozen=True, slots=True)
class Part:
    """A document that comes with a request: it belongs to the reading that the request asks for."""

    name: str
    source: BinaryIO


def text_part(text: str) -> Part:
    """A text that comes with a request. Raises ConfigError if it is no text."""
    if not text.strip():
        raise ConfigError("the text is empty or blank: there is nothing to read")
    try:
        return Part("text.txt", io.BytesIO(text.encode()))
    except UnicodeEncodeError as error:
        raise ConfigError(f"the text has a lone surrogate at character {error.start}, which is no character") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Everything that is behind the routes. `keys`: None where none are needed; `operator`: the name of the one that
    sees the metrics of all."""

    jobs: Jobs
    store: Store
    limits: Limits
    metrics: Metrics
    keys: Keys | None
    readers: tuple[str, ...]
    operator: str | None = None
    _keeping: Lock = field(default_factory=Lock)

    def keep(self, owner: str, name: str, source: BinaryIO) -> StoredFile:
        """Stores a document that was uploaded. Raises HTTPException if there are too many."""
        with self._keeping:  # those that come together count too
            if len(self.store.files(owner)) >= self.limits.files_per_key:
                raise HTTPException(409, f"you have {self.limits.files_per_key:,} files, the limit: delete some first")
            self._check_room(owner)
            return self.store.keep(owner, _clean(name), source)

    async def begin(self, job: Job, documents: Sequence[str | Part]) -> Job:
        """Accepts a job for documents that are there already, and parts of its request. No part is kept of a job that is
        refused. Raises ConfigError for a reader that is not offered, or what `Jobs.submit` does."""
        if (reader := job.options.get("reader")) not in (None, *self.readers):
            raise ConfigError(f"there is no reader {reader!r} here; there are {', '.join(self.readers)}")
        with ExitStack() as refused:
            ids = []
            for document in documents:
                if isinstance(document, Part):
                    await asyncio.to_thread(self._check_room, job.owner)
                    name, source = _clean(document.name), document.source
                    kept = await asyncio.to_thread(self.store.keep, job.owner, name, source, part=True)
                    refused.callback(self.store.drop, kept)
                    ids.append(kept.id)
                else:
                    ids.append(document)
            job = await self.jobs.submit(replace(job, documents=tuple(ids)))
            refused.pop_all()
        log.noted(reading=job.id)
        return job

    def _check_room(self, owner: str) -> None:
        """Raises HTTPException if the documents of an owner take all of their room."""
        if (stored := self.store.stored(owner)) >= self.limits.stored_bytes:
            raise HTTPException(
                409,
                f"your documents take {stored >> 20:,} MB, and the limit is {self.limits.stored_bytes >> 20:,} MB: delete"
                " files, and readings that brought a document, first",
            )

    async def ask(
        self, parent: Job, question: str, options: Mapping[str, Any], request: Mapping[str, Any] | None = None
    ) -> Job:
        """Accepts another question for the memory of a reading. Raises HTTPException if it has none, or what `Jobs.submit`
        does."""
        if parent.status != "answered":
            raise HTTPException(409, f"Only a reading that was answered has a memory to ask: this one is {parent.status}")
        asked = Job(owner=parent.owner, question=question, options=options, parent=parent.id, request=request or {})
        job = await self.jobs.submit(asked)
        log.noted(reading=job.id)
        return job

    async def delete(self, job: Job) -> None:
        """Deletes a job, with its reading and what came with its request, and ends it if it is not over."""
        job = await self.jobs.cancel(job)
        if not job.over:
            raise RefusedError(f"the reading {job.id} cannot be ended now: try again once its disk can be written", 30, 507)
        await asyncio.to_thread(self.jobs.forget, job)

    def job(self, id: str, owner: str) -> Job:
        """A job. Raises HTTPException if this owner has none of that id."""
        found = self.store.job(id, owner)
        if found is None:
            raise HTTPException(404, f"there is no reading {id!r}")
        log.noted(reading=found.id)
        return found


def _clean(name: str) -> str:
    """A file name for people: no folders, no control characters."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return "".join(char for char in last if char.isprintable())[:200] or "document"


def service_of(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


def owner_of(request: Request) -> str:
    """The name of the key that a request has, which its state has from then on. Raises HTTPException."""
    keys = service_of(request).keys
    request.state.owner = owner = LOCAL if keys is None else _holder(request, keys)
    log.noted(key=owner)
    return owner


def _holder(request: Request, keys: Keys) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    given = key.strip() if scheme.lower() == "bearer" else key_in_cookie(request)
    name = keys.name_of(given) if given is not None else None
    if name is None:
        raise HTTPException(401, "no valid key: send it as Authorization: Bearer …", {"WWW-Authenticate": "Bearer"})
    return name


class _Parsed(Request):
    """A request whose body of JSON is parsed outside Python: a list in a list in a list … uses up no stack there."""

    async def json(self) -> Any:
        """The value. Raises HTTPException (400) for what is no JSON, is nested more than 200 deep, or holds NaN."""
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise HTTPException(400, f"the body is not JSON that the service reads: {error}") from None


class Keyed(APIRoute):
    """A route that refuses requests without a valid key before it reads their bodies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def keyed(request: Request) -> Response:
            owner_of(request)
            return await handler(_Parsed(request.scope, request.receive))

        return keyed


TheService = Annotated[Service, Depends(service_of)]
Owner = Annotated[str, Depends(owner_of)]
