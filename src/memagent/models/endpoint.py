"""A server's address and credentials, and requests other than chat completions.

Secrets live in `headers`, `query` and `secrets` only: none of them is part of `repr`, of `base_url` or of an error message.
"""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import openai

from memagent.errors import ConfigError
from memagent.models.replies import redact

DEFAULT_BASE_URL = "https://api.openai.com/v1"
_PLACEHOLDER = "none"  # local servers ask for no key, but the client wants one
# Clients and servers (uvicorn: 5 s) both drop idle connections; dropping them first avoids writing into a closing one.
_IDLE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where requests go. `base_url` is scheme://host:port/path, without credentials and query."""

    base_url: str
    api_key: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    query: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @classmethod
    def parse(cls, base_url: str | None, api_key: str | None) -> Endpoint:
        """From the user's values. Missing parts come from the environment: MEMAGENT_BASE_URL, then OPENAI_BASE_URL;
        MEMAGENT_API_KEY, then OPENAI_API_KEY. `user:password@` in the URL is sent as basic authentication, in place of
        the key. Raises ConfigError for what is not an http(s) URL."""
        given = base_url or from_environment("BASE_URL") or DEFAULT_BASE_URL
        key = api_key or from_environment("API_KEY") or _PLACEHOLDER
        try:
            parts = urlsplit(given)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or parts.scheme not in ("http", "https"):
            raise ConfigError("the base URL must look like http://host:port/v1 or https://host/v1")
        name = f"[{host}]" if ":" in host else host
        clean = f"{parts.scheme}://{name}{f':{port}' if port else ''}{_base_path(parts.path)}"
        query = dict(parse_qsl(parts.query))
        secrets = [key] if key != _PLACEHOLDER else []
        headers: dict[str, str] = {}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            token = base64.b64encode(login.encode()).decode()
            headers["Authorization"] = f"Basic {token}"
            secrets += [login, token, unquote(parts.password or "")]
        secrets += query.values()
        return cls(base_url=clean, api_key=key, headers=headers, query=query, secrets=tuple(filter(None, secrets)))

    @property
    def root(self) -> str:
        """The address of the routes that are not OpenAI's."""
        return self.base_url.removesuffix("/v1")

    def redact(self, text: str) -> str:
        """`text` without this endpoint's secrets."""
        return redact(text, self.secrets)


def _base_path(path: str) -> str:
    """The path for clients, without the chat route that users may paste."""
    return path.rstrip("/").removesuffix("/chat/completions")


def from_environment(name: str) -> str | None:
    """What the user's environment says of a server, such as "API_KEY"."""
    return os.environ.get(f"MEMAGENT_{name}") or os.environ.get(f"OPENAI_{name}")


def connection_limits(connections: int) -> Any:
    """Limits of a connection pool. The class is taken from the SDK, which is built on one of two HTTP packages."""
    kind = type(openai.DEFAULT_CONNECTION_LIMITS)
    return kind(max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=_IDLE_SECONDS)


class SideChannel:
    """Requests to a server's other routes. A failure gives None, because this information is optional."""

    def __init__(self, endpoint: Endpoint, *, timeout: float = 5.0) -> None:
        self.endpoint = endpoint
        self._timeout = openai.Timeout(timeout, connect=min(timeout, 2.0))
        self._client: Any = None
        self._lock = threading.Lock()

    def ask(self, url: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON answer of a GET (or of a POST of `body`), or None."""
        return self._request(url, body, lambda reply: reply.json())

    def text(self, url: str) -> str | None:
        """The text that a GET answers, or None."""
        found = self._request(url, None, lambda reply: reply.text)
        return None if found is None else str(found)

    def _request(self, url: str, body: Mapping[str, Any] | None, parsed: Callable[[Any], Any]) -> Any:
        try:
            reply = self._open().request("GET" if body is None else "POST", url, json=body)
            return parsed(reply) if reply.status_code == 200 else None
        except Exception:  # any HTTP, decoding or closed-client error: the one boundary of this class
            return None

    def close(self) -> None:
        """Closes the connections; a later request opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _open(self) -> Any:
        with self._lock:
            if self._client is None:
                headers = {"Authorization": f"Bearer {self.endpoint.api_key}", **self.endpoint.headers}
                self._client = openai.DefaultHttpxClient(
                    headers=headers,
                    params=dict(self.endpoint.query),
                    timeout=self._timeout,
                    limits=connection_limits(8),
                )
            return self._client
