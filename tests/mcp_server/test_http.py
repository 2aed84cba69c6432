"""The same over HTTP, for this machine only."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from mcp import Client
from typer.testing import CliRunner

from memagent.cli import app
from tests.faults import FaultServer
from tests.mcp_server.clients import said, told
from tests.mcp_server.test_stdio import served
from tests.servers import free_port

QUESTION = "What is the code for amber-falcon?"


@contextmanager
def listening(server: FaultServer, root: Path) -> Iterator[str]:
    """The address of a server process."""
    port = free_port()
    command = [sys.executable, "-m", "memagent", "mcp", "--http", "--port", str(port), *served(server, root)]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, env=dict(os.environ))
    try:
        for _ in range(600):
            try:
                httpx.get(f"http://127.0.0.1:{port}/", timeout=5)
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 130
        assert running.stderr is not None
        assert b"Traceback" not in running.stderr.read()
    finally:
        running.kill()
        running.wait()


def test_questions_are_answered_over_http_and_other_names_refused(root: Path, server: FaultServer) -> None:
    async def main(url: str) -> None:
        for mode in ("auto", "legacy"):
            async with Client(url, mode=mode) as client:
                answer = told(await client.call_tool("ask_document", {"question": QUESTION, "path": "book.txt"}))
                assert (answer["answer"], answer["status"]) == ("4821973", "supported")
                assert "leads outside" in said(await client.call_tool("ask_document", {"question": "?", "path": "/etc"}))
        hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        accepted = {"accept": "application/json, text/event-stream"}
        async with httpx.AsyncClient() as plain:
            for headers, code in (({"host": "evil.example"}, 421), ({"origin": "https://evil.example"}, 403)):
                assert (await plain.post(url, json=hello, headers={**accepted, **headers})).status_code == code
            assert (await plain.post(url, content=b"x" * (17 << 20), headers=accepted)).status_code >= 400

    with listening(server, root) as url:
        asyncio.run(main(url))


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "example.org"])
def test_addresses_that_others_can_reach_are_refused(root: Path, host: str) -> None:
    result = CliRunner().invoke(app, ["mcp", "--http", "--host", host, "--root", str(root)])
    assert result.exit_code == 2
    assert "can be reached from other machines" in result.stderr


def test_a_root_that_is_no_folder_is_said_before_anything_is_served(root: Path) -> None:
    result = CliRunner().invoke(app, ["mcp", "--root", str(root / "none")])
    assert result.exit_code == 2
    assert "is no folder" in result.stderr


def test_without_the_extra_its_name_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("memagent.mcp_server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    result = CliRunner().invoke(app, ["mcp", "--root", str(root)])
    assert "pip install 'memagent[mcp]'" in result.stderr
