"""A service on a free port in a thread, and requests to it as a browser sends them."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from memagent.models.open import OpenModel
from memagent.server.run import Place, built
from memagent.server.values import Limits
from memagent.settings import ReadingOptions
from tests.servers import free_port

_BORDER = "----a-border-that-stands-nowhere-else"


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str


@dataclass
class Running:
    """A service, and what a browser would keep of it: the cookie."""

    port: int
    server: uvicorn.Server
    cookie: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            given.setdefault("cookie", self.cookie)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, given)
        got = connection.getresponse()
        answer = Answer(got.status, {name.lower(): value for name, value in got.getheaders()}, got.read().decode())
        connection.close()
        return answer

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, accept=headers.pop("accept", "text/html"), **headers)

    def send(
        self,
        path: str,
        fields: Mapping[str, str],
        files: Sequence[tuple[str, bytes]] = (),
        field: str = "files",
        **headers: str,
    ) -> Answer:
        """Sends a form, from a page of the service unless `origin` says otherwise."""
        headers = {"origin": self.url, "accept": "text/html", **headers}
        headers = {name: value for name, value in headers.items() if value}
        parts = [(f'name="{name}"', value.encode()) for name, value in fields.items()]
        parts += [(f'name="{field}"; filename="{_named(name)}"', data) for name, data in files]
        body = b"".join(
            f"--{_BORDER}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + data + b"\r\n"
            for head, data in parts
        )
        kind = f"multipart/form-data; boundary={_BORDER}"
        return self.ask("POST", path, body + f"--{_BORDER}--\r\n".encode(), content_type=kind, **headers)

    def stop(self) -> None:
        self.server.should_exit = True


@contextmanager
def service(
    folder: Path,
    opened: OpenModel,
    options: ReadingOptions,
    *,
    keys: Path | None = None,
    limits: Limits | None = None,
    port: int | None = None,
    model: str = "scripted",
) -> Iterator[Running]:
    """A service whose data are in a folder."""
    port = port or free_port()
    place = Place(host="127.0.0.1", port=port, folder=folder, keys=keys)
    with ExitStack() as stack:
        app, _ = built(stack, place, opened, model, None, options, limits or Limits())
        config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            until(lambda: server.started)
            yield Running(port, server)
        finally:
            server.should_exit = True
            thread.join(30)


def _named(name: str) -> str:
    """A file name as browsers write it into a form."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def until(holds: Any, seconds: float = 60) -> Any:
    """Waits until a function gives something true, and returns that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come true in time")
