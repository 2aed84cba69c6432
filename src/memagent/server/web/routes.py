"""The routes of the page. Each form answers a browser with a page, and our script with JSON."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException  # which forms that are none raise too

from memagent.errors import JournalError, MemagentError
from memagent.page.gather import page_of
from memagent.page.render import html, policy
from memagent.server import cookie
from memagent.server.hints import for_clients
from memagent.server.problems import code_of
from memagent.server.state import Owner, Service, TheService
from memagent.server.values import Job
from memagent.server.web.assets import asset
from memagent.server.web.forms import Form, key_sent, question_of, sent, submitted
from memagent.server.web.render import rendered
from memagent.server.web.views import home_of

_SHOWN = 30  # readings of the history
_MOST = 2000
_REFRESH = 3  # seconds after which a browser without scripts looks again
_OF_READING = re.compile(r"/(?:\?reading=|readings/)[A-Za-z0-9-]{1,100}")
# A form of a page that sends no referrer has the origin "null", which is taken for another site.
_HEADERS = {"referrer-policy": "same-origin"}


class _Page(APIRoute):
    """A route whose errors are pages, unless JSON is asked for."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def shown(request: Request) -> Response:
            try:
                return await handler(request)
            except (HTTPException, MemagentError) as error:
                if _wants_json(request):
                    raise
                return _failed(request, error)

        return shown


routes = APIRouter(route_class=_Page, include_in_schema=False)


@routes.get("/")
async def home(service: TheService, owner: Owner, reading: str = "", show: str = "") -> Response:
    """The form and the history, or one reading and the history."""
    most = min(int(show), _MOST) if show.isdecimal() and 0 < len(show) < 6 else _SHOWN
    job = await asyncio.to_thread(service.job, reading, owner) if reading else None
    return await _home(service, owner, job=job, show=max(1, most))


@routes.post("/readings")
async def begin(request: Request, service: TheService, owner: Owner) -> Response:
    """Begins a reading of files or of a text."""
    form = await sent(request, service)
    try:
        job = await submitted(service, owner, form)
    except (HTTPException, MemagentError) as error:
        if _wants_json(request):
            raise
        return await _home(service, owner, form=form, error=error)
    return _on(request, f"/readings/{job.id}", job)


@routes.get("/readings/{id}")
async def reading(id: str, service: TheService, owner: Owner) -> Response:
    """The page of a reading that is over. Until then, how far it is, again and again."""
    job = await asyncio.to_thread(service.job, id, owner)
    if job.over and (found := await asyncio.to_thread(_checked, service, job)) is not None:
        return HTMLResponse(found, headers={"content-security-policy": f"{policy()}; frame-ancestors 'none'"})
    return await _home(service, owner, job=job, refresh=0 if job.over else _REFRESH)


@routes.post("/readings/{id}/ask")
async def ask(id: str, request: Request, service: TheService, owner: Owner) -> Response:
    """Asks another question of the memory that a reading ended with."""
    parent, form = await asyncio.to_thread(service.job, id, owner), await sent(request, service)
    try:
        job = await service.ask(parent, question_of(form), {})
    except (HTTPException, MemagentError) as error:
        if _wants_json(request):
            raise
        return await _home(service, owner, job=parent, form=form, error=error)
    return _on(request, f"/readings/{job.id}", job)


@routes.post("/readings/{id}/cancel")
async def cancel(id: str, request: Request, service: TheService, owner: Owner) -> Response:
    """Ends a reading that is not over."""
    job = await service.jobs.cancel(await asyncio.to_thread(service.job, id, owner))
    return _on(request, f"/?reading={job.id}", job)


@routes.post("/readings/{id}/delete")
async def delete(id: str, request: Request, service: TheService, owner: Owner) -> Response:
    """Deletes a reading, with the files or the text that came with it."""
    await service.delete(await asyncio.to_thread(service.job, id, owner))
    return _on(request, "/")


@routes.post("/login")
async def login(request: Request, service: TheService) -> Response:
    """Has the browser keep a key, if it is one."""
    cookie.from_our_page(request)
    fields = (await key_sent(request)).fields
    key, wanted = fields.get("key", "").strip(), _ours(fields.get("wanted", ""))
    if service.keys is None:
        return _on(request, "/")
    if service.keys.name_of(key) is None:
        return _login(wanted, "This is not a key of this service. Check that all of it was copied.")
    response = _on(request, wanted)
    cookie.remember(request, response, key)
    return response


@routes.post("/logout")
async def logout(request: Request) -> Response:
    """Has the browser forget its key."""
    cookie.from_our_page(request)
    response = _on(request, "/")
    cookie.forget(request, response)
    return response


@routes.get("/static/{name}")
async def static(name: str) -> Response:
    """A file that the page is made with."""
    if (found := asset(name)) is None:
        raise HTTPException(404, f"there is no file {name!r}")
    return Response(found[0], media_type=found[1], headers={"cache-control": "public, max-age=31536000, immutable"})


@routes.get("/favicon.ico")
async def icon() -> Response:
    """What browsers ask for of their own accord."""
    return await static("icon.svg")


async def _home(
    service: Service,
    owner: str,
    *,
    job: Job | None = None,
    show: int = _SHOWN,
    form: Form | None = None,
    error: Exception | None = None,
    refresh: int = 0,
) -> Response:
    typed = form.fields if form else None
    view = await asyncio.to_thread(home_of, service, owner, show, job, typed, _words(error) if error else "")
    code = code_of(error) if error else 200
    return HTMLResponse(rendered("home.html.j2", home=view, refresh=refresh), code, _HEADERS)


def _checked(service: Service, job: Job) -> str | None:
    """The page of a reading; None if it has not begun, or is no longer in the journal."""
    desk = service.jobs.desk
    if job.reading is None:
        return None
    try:
        record = desk.journal.show(job.reading)
    except JournalError:
        return None
    whole = desk.whole
    page = page_of(desk.journal, record, lambda: desk.shelf.open(whole(job).documents, job.owner))
    return html(page, back=f"/?reading={job.id}")


def _on(request: Request, address: str, job: Job | None = None) -> Response:
    """Where to go after a form."""
    if _wants_json(request):
        return JSONResponse({"next": f"/?reading={job.id}" if job else address})
    return RedirectResponse(address, 303)


def _wants_json(request: Request) -> bool:
    return "application/json" in request.headers.get("accept", "")


def _failed(request: Request, error: Exception) -> Response:
    if code_of(error) == 401:
        return _login(f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path)
    title = "There is nothing here" if code_of(error) == 404 else "That did not work"
    page = rendered("message.html.j2", title=title, text=_words(error))
    return HTMLResponse(page, code_of(error), _HEADERS)


def _login(wanted: str, error: str = "") -> Response:
    return HTMLResponse(rendered("login.html.j2", wanted=_ours(wanted), error=error), 401, _HEADERS)


def _ours(address: str) -> str:
    """An address to go on to after the login, if it is that of a reading; otherwise that of the form."""
    return address if _OF_READING.fullmatch(address) else "/"


def _words(error: Exception) -> str:
    return str(error.detail) if isinstance(error, HTTPException) else for_clients(str(error))
