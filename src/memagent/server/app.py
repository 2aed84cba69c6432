"""The application: routes, errors in OpenAI's form, health and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.routing import Route

from memagent import __version__
from memagent.errors import MemagentError
from memagent.server import chat, readings
from memagent.server.guard import Guard
from memagent.server.hints import for_clients
from memagent.server.jobs import RefusedError
from memagent.server.openapi import described
from memagent.server.outage import DISK, away
from memagent.server.problems import Unforeseen, answer, code_of
from memagent.server.responses import routes as responses
from memagent.server.state import Owner, Service, TheService
from memagent.server.web import routes as web
from memagent.tables import telling

if TYPE_CHECKING:
    from memagent.server.mcp_route import McpRoute


_THREADS = 64


def create_app(service: Service) -> Guard:
    """The ASGI application of a service. It starts and stops reading with it."""

    mcp = _mcp(service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # By default there are few threads, and documents that are being opened would keep all other requests waiting.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "memagent"))
        async with AsyncExitStack() as stack:
            if mcp is not None:
                await stack.enter_async_context(mcp.run())
            await service.jobs.start()
            stack.push_async_callback(service.jobs.close)
            yield

    app = FastAPI(title="memagent", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.include_router(readings.routes)
    app.include_router(chat.routes)
    app.include_router(responses.routes)
    app.include_router(web.routes)
    if mcp is not None:
        app.router.routes.append(Route(mcp.path, mcp))
    for path, look in (("/health", _health), ("/ready", _ready), ("/metrics", _metrics)):
        app.get(path)(look)
        app.head(path, include_in_schema=False)(look)
    app.exception_handler(MemagentError)(_failed)
    app.exception_handler(HTTPException)(_refused)
    app.exception_handler(RequestValidationError)(_invalid)
    app.add_middleware(Unforeseen)
    app.openapi = described(app, keys=service.keys is not None)  # type: ignore[method-assign]  # as FastAPI has it done
    limit, local = service.limits.upload_bytes, service.keys is None
    return Guard(app, limit=limit, local=local, metrics=service.metrics)


def _mcp(service: Service) -> McpRoute | None:
    """The route for other programs' models; None without the extra "mcp"."""
    if find_spec("mcp") is None:
        return None
    from memagent.server.mcp_route import McpRoute

    return McpRoute(service)


async def _health() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "ok"}


async def _ready(service: TheService) -> JSONResponse:
    """Whether readings are taken: not while the service shuts down, or its disk cannot be written. They are taken, and
    wait, while the model's server is away: `waiting` says so."""
    try:
        await asyncio.to_thread(service.store.check)
    except Exception as error:
        return JSONResponse({"status": "not ready", "reason": away(error) or type(error).__name__}, 503)
    if not service.jobs.open:
        return JSONResponse({"status": "shutting down"}, 503)
    reason = service.jobs.outage.reason
    return JSONResponse({"status": "ready"} | ({"waiting": reason} if reason else {}))


async def _metrics(service: TheService, owner: Owner) -> PlainTextResponse:
    """Counters for Prometheus. Where keys are needed, one is needed here too; the operator's sees the tokens of all."""
    only = None if service.keys is None or owner == service.operator else owner
    return PlainTextResponse(service.metrics.text(only), media_type="text/plain; version=0.0.4")


async def _failed(_: Request, error: Exception) -> Response:
    headers = {"Retry-After": str(error.after)} if isinstance(error, RefusedError) else None
    message = f"{DISK}: try again once there is room" if away(error) == DISK else for_clients(str(error))
    return answer(code_of(error), message, headers=headers)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return answer(error.status_code, str(error.detail), headers=dict(error.headers or {}))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found: list[Any] = [{**one, "loc": one["loc"][1:]} for one in error.errors()]  # all are of the body, or of the query
    first = telling(found)
    where = ".".join(str(part) for part in first["loc"] if part != "str" and "[" not in str(part))
    said, kind = f"{where or 'the body'}: {first['msg']}", request.headers.get("content-type", "")
    if not where and "json" not in kind:
        said = f"the body is taken as JSON only with the header Content-Type: application/json, not {kind[:100]!r}"
    return answer(400, said, param=where or None)
