"""Serves over standard input and output, or over HTTP for this machine."""

from __future__ import annotations

from dataclasses import dataclass

import uvicorn

from memagent.errors import ConfigError
from memagent.mcp_server.desk import Desk
from memagent.mcp_server.tools import Server

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_BODY = 16 << 20  # bytes of a request, which may have a text in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server listens. Anyone who reaches it can have files read, so it is for this machine only."""

    host: str
    port: int

    def check(self) -> None:
        """Raises ConfigError for an address that other machines can reach."""
        if self.host not in _LOOPBACK:
            raise ConfigError(
                f"--host {self.host} can be reached from other machines: use one of {', '.join(_LOOPBACK)}."
                " For others, memagent serve --keys FILE has these tools at /mcp"
            )

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/mcp"


def serve_stdio(desk: Desk, readings: int) -> None:
    """Serves one client, until it closes our standard input."""
    Server(desk, readings).run("stdio")


def serve_http(desk: Desk, readings: int, address: Address) -> None:
    """Serves until the process is told to end. Requests of other sites' pages, and for other names, are refused."""
    app = Server(desk, readings).streamable_http_app(host=address.host, max_request_body_size=_BODY)
    uvicorn.run(
        app,
        host=address.host,
        port=address.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
