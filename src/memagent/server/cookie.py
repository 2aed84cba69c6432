"""The key of a browser, in a cookie.

Browsers send a cookie along with every request, so a request that changes something must come from a page of ours."""

from __future__ import annotations

from urllib.parse import quote, unquote

from fastapi import HTTPException, Request, Response

from memagent.server.origin import comes_from

_NAME = "memagent_key"
_HARMLESS = ("GET", "HEAD")


def key_in_cookie(request: Request) -> str | None:
    """The key that a browser sends; None: it sends none. Raises HTTPException for a change that another site asks for."""
    key = request.cookies.get(_NAME)
    if key is None:
        return None
    if request.method not in _HARMLESS:
        from_our_page(request)
    return unquote(key)


def from_our_page(request: Request) -> None:
    """Raises HTTPException unless a page of this service sends the request."""
    if not comes_from(request.headers.get("origin", ""), request.headers.get("host", "")):
        raise HTTPException(403, "a browser must send this from a page of this service: its Origin is another")


def remember(request: Request, response: Response, key: str) -> None:
    """Has the browser keep a key until it is closed, out of reach of scripts and of requests from other sites."""
    secure = request.url.scheme == "https"
    response.set_cookie(_NAME, quote(key, safe=""), path="/", secure=secure, httponly=True, samesite="strict")


def forget(request: Request, response: Response) -> None:
    """Has the browser forget its key."""
    secure = request.url.scheme == "https"
    response.delete_cookie(_NAME, path="/", secure=secure, httponly=True, samesite="strict")
