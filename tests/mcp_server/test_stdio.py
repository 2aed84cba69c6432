"""A real server process, over its standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from mcp import Client, stdio_client

from memagent.journal import Journal
from tests.cli.conftest import FACT, reader
from tests.faults import FaultServer
from tests.mcp_server.clients import process, said, told

QUESTION = "What is the access code for amber-falcon?"


def test_the_embedded_model_answers_over_stdio(tmp_path: Path, root: Path) -> None:
    (root / "note.txt").write_text(
        "The sea was grey.\n" * 300 + "The access code for amber-falcon is 4821973.\n" + "The sea was calm.\n" * 100
    )
    (tmp_path / "secret.txt").write_text("secret")
    steps: list[str | None] = []

    async def progress(_: float, __: float | None, message: str | None) -> None:
        steps.append(message)

    async def main(log: tempfile._TemporaryFileWrapper[str]) -> None:
        async with Client(stdio_client(process(cwd=root), errlog=log)) as client:
            given = {"question": QUESTION, "path": "note.txt"}
            answer = told(await client.call_tool("ask_document", given, progress_callback=progress))
            assert (answer["answer"], answer["status"]) == ("4821973", "supported")
            again = {"reading": answer["reading"], "question": QUESTION}
            assert told(await client.call_tool("ask_again", again))["answer"] == "4821973"
            listed = told(await client.call_tool("list_readings", {"limit": 1}))["readings"]
            [_, first] = (await client.list_resources()).resources
            assert (len(listed), first.uri) == (1, f"reading://{answer['reading']}")
            shown = json.loads((await client.read_resource(first.uri)).contents[0].text)  # type: ignore[union-attr]
            assert (shown["answer"], shown["question"]) == ("4821973", QUESTION)
            assert "4821973" in shown["memory"]
            assert "4821973" in shown["quotes"][0]["cited_text"]
            assert len(shown["progress"]) == answer["turns"]
            outside = await client.call_tool("ask_document", {"question": QUESTION, "path": str(tmp_path / "secret.txt")})
            assert "leads outside" in said(outside)

    with tempfile.NamedTemporaryFile("w+") as log:
        asyncio.run(main(log))
        log.seek(0)
        printed = log.read()
    assert "files below" in printed
    assert "sea" not in printed
    assert "4821973" not in printed
    assert any("turn 3 of" in str(step) for step in steps)


def served(server: FaultServer, root: Path) -> list[str]:
    model = ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100", "--memory-tokens", "50"]
    return [*model, "--root", str(root)]


def test_a_call_that_is_cancelled_stops_the_reading_which_can_be_resumed(root: Path) -> None:
    async def main(server: FaultServer) -> None:
        begun = asyncio.Event()

        async def progress(done: float, _: float | None, __: str | None) -> None:
            if done >= 3:
                begun.set()

        async with Client(process(*served(server, root))) as client:
            given = {"question": QUESTION, "path": "book.txt"}
            call = asyncio.create_task(client.call_tool("ask_document", given, progress_callback=progress))
            await asyncio.wait_for(begun.wait(), 60)
            call.cancel()
            await asyncio.wait([call])
            async with asyncio.timeout(20):
                while True:
                    [one] = told(await client.call_tool("list_readings", {}))["readings"]
                    if one["status"] == "interrupted":
                        break
                    await asyncio.sleep(0.05)
            asked = len(server.requests)
            await asyncio.sleep(0.5)
            assert len(server.requests) == asked < 20
            answer = told(await client.call_tool("resume_reading", {"reading": one["reading"]}))
            assert answer["answer"] == "4821973"
            prompts = [json.dumps(request["messages"]) for request in server.requests if "<section>" in str(request)]
            assert len(prompts) - len(set(prompts)) <= 1  # the turn that was under way is asked again

    with FaultServer(reader, delay=0.1) as server:
        asyncio.run(main(server))


def test_a_process_that_is_killed_leaves_a_reading_for_the_next_one(root: Path, home: Path) -> None:
    async def interrupted(server: FaultServer) -> None:
        async with Client(process(*served(server, root))) as client:
            call = asyncio.create_task(client.call_tool("ask_document", {"question": QUESTION, "path": "book.txt"}))
            while len(server.requests) < 5:
                await asyncio.sleep(0.01)
            with Journal.open() as journal:
                [record] = journal.list()
            os.kill(int(record.owner.split()[1]), signal.SIGKILL)
            await asyncio.wait([call], timeout=10)
            call.cancel()

    async def resumed(server: FaultServer) -> None:
        async with Client(process(*served(server, root))) as client:
            [one] = told(await client.call_tool("list_readings", {}))["readings"]
            assert one["status"] == "interrupted"
            assert told(await client.call_tool("resume_reading", {"reading": one["reading"]}))["answer"] == "4821973"

    with FaultServer(reader, delay=0.05) as server:
        asyncio.run(interrupted(server))
        asyncio.run(resumed(server))


def test_a_client_that_leaves_in_the_middle_leaves_a_reading_to_resume(root: Path) -> None:
    async def main(server: FaultServer) -> None:
        async with Client(process(*served(server, root))) as client:
            call = asyncio.create_task(client.call_tool("ask_document", {"question": QUESTION, "path": "book.txt"}))
            while len(server.requests) < 5:
                await asyncio.sleep(0.01)
        await asyncio.wait([call], timeout=10)
        call.cancel()

    with FaultServer(reader, delay=0.05) as server:
        asyncio.run(main(server))
        asked = len(server.requests)
    assert asked < 20
    with Journal.open() as journal:
        [record] = journal.list()
    assert record.status == "interrupted"
    assert 3 <= record.turns < 20


@pytest.mark.parametrize("end", ["close", "term"])
def test_the_process_ends_when_it_is_told_to(root: Path, end: str) -> None:
    with FaultServer(lambda _: FACT) as server:
        running = subprocess.Popen(
            [sys.executable, "-m", "memagent", "mcp", *served(server, root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        running.stdin.write(json.dumps(request) + "\n")
        running.stdin.flush()
        assert json.loads(running.stdout.readline())["result"]["serverInfo"]["name"] == "memagent"
        if end == "term":
            running.terminate()
        else:
            running.stdin.close()
        code = running.wait(30)
        assert code == (130 if end == "term" else 0)
        assert running.stdout.read() == ""
        assert "Traceback" not in running.stderr.read()
