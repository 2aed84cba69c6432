"""A server's address and credentials.

Secrets live in `headers`, `query` and `secrets` only: none of them is part of `repr`, of `base_url` or of an error message.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from memagent.errors import ConfigError
from memagent.models.replies import redact

DEFAULT_BASE_URL = "https://api.openai.com/v1"
_PLACEHOLDER = "none"  # local servers ask for no key, but the client wants one
# Headers that OpenAI bills by, and where its users keep them.
_ACCOUNT = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where requests go. `base_url` is scheme://host:port/path, without credentials and query."""

    base_url: str
    headers: Mapping[str, str] = field(repr=False)
    query: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    proxy: str | None = field(repr=False)

    @classmethod
    def parse(cls, base_url: str | None, api_key: str | None) -> Endpoint:
        """From the user's values. Missing parts come from the environment: MEMAGENT_BASE_URL, then OPENAI_BASE_URL;
        MEMAGENT_API_KEY, then OPENAI_API_KEY. `user:password@` in the URL is sent as basic authentication, in place of
        the key. Raises ConfigError for what is not an http(s) URL, a key that fits no header, and a proxy that is not one
        of HTTP; which proxy, HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY say."""
        given = base_url or from_environment("BASE_URL") or DEFAULT_BASE_URL
        key = (api_key or from_environment("API_KEY") or "").strip() or _PLACEHOLDER  # files of keys end with a line break
        account = {header: os.environ.get(name, "").strip() for header, name in _ACCOUNT.items()}
        for name, value in (("the API key", key), *((_ACCOUNT[header], value) for header, value in account.items())):
            if not value.isprintable():
                raise ConfigError(f"{name} has a line break or another control character in it")
        given = given.strip()
        if not given.isprintable() or " " in given:  # a URL in a text, a journal's for one, ends there
            raise ConfigError("the base URL has a space or a control character in it: write %20 for a space")
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
        headers = {"Authorization": f"Bearer {key}", **{header: value for header, value in account.items() if value}}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            token = base64.b64encode(login.encode()).decode()
            headers["Authorization"] = f"Basic {token}"
            secrets += [login, token, unquote(parts.password or "")]
        secrets += query.values()
        proxy = _proxy_of(clean)
        secrets.append(unquote(urlsplit(proxy or "").password or ""))
        return cls(base_url=clean, headers=headers, query=query, secrets=tuple(filter(None, secrets)), proxy=proxy)

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


def _proxy_of(url: str) -> str | None:
    """The proxy that the environment names for an address. Raises ConfigError for one that is not an HTTP proxy."""
    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc) or proxy_bypass(str(parts.hostname)):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        kind, _ = urlsplit(proxy).scheme, urlsplit(proxy).port  # which raises where a password has # or / in it
    except ValueError:
        raise ConfigError(
            f"the environment names a proxy for {parts.hostname} that is not a URL such as http://user:password@host:port:"
            " in a password, write %23 for # and %2F for /"
        ) from None
    if kind not in ("http", "https"):
        raise ConfigError(
            f"the environment names a {kind} proxy for {parts.hostname}, and only HTTP proxies are supported: set NO_PROXY,"
            " or HTTPS_PROXY to an HTTP proxy"
        )
    return proxy
