"""A real service on a free port, in a thread of the test or a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import uvicorn

from memagent.models.open import OpenModel
from memagent.server.patience import PatientProtocol
from memagent.server.run import Place, built
from memagent.server.values import Limits

OPTIONS = {"question_tokens": 500, "chunk_tokens": 300, "memory_tokens": 120, "answer_tokens": 200}


@contextmanager
def served(
    opened: OpenModel, folder: Path, *, options: Mapping[str, Any] | None = None, limits: Limits | None = None, **place: Any
) -> Iterator[httpx.Client]:
    """A client of a service with this model."""
    with ExitStack() as stack:
        where = Place(host="127.0.0.1", port=0, folder=folder, **place)
        app, _ = built(stack, where, opened, "scripted", None, {**OPTIONS, **(options or {})}, limits or Limits())
        server = uvicorn.Server(uvicorn.Config(app, port=0, http=PatientProtocol, log_level="error"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client
        server.should_exit = True
        thread.join()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServiceProcess:
    """`memagent serve` as a process of its own, which can be killed and started again."""

    def __init__(self, home: Path, arguments: Sequence[str], **environment: str) -> None:
        self.port = free_port()
        self._log = home.with_suffix(".log")
        self._command = [sys.executable, "-m", "memagent", "serve", "--port", str(self.port), *arguments]
        self._environment = {**os.environ, "MEMAGENT_HOME": str(home), **environment}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Starts the process, which is not there for requests yet."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)

    def wait(self) -> None:
        """Until the service is there."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/ready").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        raise TimeoutError("the service did not start")

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=30)

    @property
    def log(self) -> str:
        """What it has printed."""
        return self._log.read_text()

    @property
    def client(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)


def ended(client: httpx.Client, id: str, **options: Any) -> dict[str, Any]:
    """A reading once it is over."""
    while (found := client.get(f"/v1/readings/{id}", **options).json())["status"] in ("queued", "running"):
        time.sleep(0.02)
    return dict(found)
