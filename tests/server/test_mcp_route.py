"""The MCP route of a real service, asked by the SDK's own client."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from memagent.server.keys import add_key
from tests.faults import FaultServer
from tests.mcp_server.clients import said, told
from tests.server.service import ServiceProcess, ended
from tests.server.service import served as in_process
from tests.test_follow_up import TEXT, model, served

SIZES = ["--chunk-tokens", "300", "--memory-tokens", "120"]
ASKED = {"question": "the code?", "text": TEXT}
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPTED = {"accept": "application/json, text/event-stream"}


@dataclass
class Place:
    """A service with the keys of two people, and the model behind it."""

    service: ServiceProcess
    model: FaultServer
    ann: str
    bob: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.service.port}/mcp"

    @asynccontextmanager
    async def client(self, key: str | None, mode: str = "auto") -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with (
            httpx.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode) as client,  # type: ignore[arg-type]
        ):
            yield client


@contextmanager
def place(tmp_path: Path, *, delay: float = 0.0, keys: bool = True) -> Iterator[Place]:
    file, root = tmp_path / "keys.txt", tmp_path / "root"
    root.mkdir()
    (root / "book.txt").write_text(TEXT)
    ann, bob = add_key(file, "ann"), add_key(file, "bob")
    with FaultServer(served, delay=delay) as model:
        own = ["--keys", str(file)] if keys else []
        there = ["--model", "scripted", "--base-url", model.url, "--root", str(root), *own, *SIZES]
        service = ServiceProcess(tmp_path / "home", there)
        service.start()
        yield Place(service, model, ann, bob)
        assert service.stop() == 0
        assert "Traceback" not in service.log


def run(place: Place, main: Callable[[Place], Awaitable[None]]) -> None:
    asyncio.run(main(place))  # type: ignore[arg-type]


def test_a_model_with_a_key_asks_documents_and_goes_on_from_its_readings(tmp_path) -> None:
    steps: list[str | None] = []

    async def progress(_: float, __: float | None, message: str | None) -> None:
        steps.append(message)

    async def main(place: Place) -> None:
        for mode in ("auto", "legacy"):
            async with place.client(place.ann, mode) as client:
                answer = told(await client.call_tool("ask_document", ASKED, progress_callback=progress))
                assert (answer["answer"], answer["status"]) == ("4821973", "supported")
                assert "4821973" in answer["quotes"][0]["cited_text"]
                below = told(await client.call_tool("ask_document", {"question": "the code?", "path": "book.txt"}))
                assert below["answer"] == "4821973"
                again = {"reading": answer["reading"], "question": "who is the captain?"}
                assert told(await client.call_tool("ask_again", again))["answer"] == "Ann"
                asked = len(place.model.requests)
                same = told(await client.call_tool("resume_reading", {"reading": answer["reading"]}))
                assert (same, len(place.model.requests)) == (answer, asked)
                listed = told(await client.call_tool("list_readings", {"limit": 2}))["readings"]
                assert [one["question"] for one in listed] == ["who is the captain?", "the code?"]
                shown = told(await client.call_tool("get_reading", {"reading": answer["reading"]}))
                assert (shown["answer"], shown["files"], shown["status"]) == ("4821973", ["text.txt"], "answered")
                assert len(shown["progress"]) == answer["turns"]
                content = (await client.read_resource(f"reading://{answer['reading']}")).contents[0]
                assert "4821973" in json.loads(content.text)["memory"]  # type: ignore[union-attr]
                outside = await client.call_tool("ask_document", {"question": "?", "path": "../keys.txt"})
                assert "no document '../keys.txt' below the root folder" in said(outside)
                both = await client.call_tool("ask_document", {**ASKED, "path": "book.txt"})
                assert "one of them" in said(both)
                none = await client.call_tool("ask_document", {**ASKED, "reader": "none"})
                assert "none" in said(none)

    with place(tmp_path) as there:
        run(there, main)
        with there.service.client as client:  # the same jobs as those of the other routes
            listed = client.get("/v1/readings", headers={"Authorization": f"Bearer {there.ann}"}).json()["readings"]
            assert len(listed) == 6
            key = 'memagent_requests_total{code="200",route="/mcp"}'
            assert key in client.get("/metrics", headers={"Authorization": f"Bearer {there.ann}"}).text
        assert str(tmp_path / "root") not in there.service.log
    assert any(step and step.startswith("turn 3 of") for step in steps)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_no_key_sees_or_touches_what_belongs_to_another(tmp_path, mode: str) -> None:
    async def main(place: Place) -> None:
        async with place.client(place.ann, mode) as ann, place.client(place.bob, mode) as bob:
            own = told(await ann.call_tool("ask_document", ASKED))["reading"]
            for tool, more in (("get_reading", {}), ("resume_reading", {}), ("ask_again", {"question": "the code?"})):
                assert said(await bob.call_tool(tool, {"reading": own, **more})).endswith(f": there is no reading {own!r}")
            assert told(await bob.call_tool("list_readings", {}))["readings"] == []
            with pytest.raises(MCPError, match="there is no reading"):
                await bob.read_resource(f"reading://{own}")
            assert told(await ann.call_tool("get_reading", {"reading": own}))["answer"] == "4821973"

    with place(tmp_path) as there:
        run(there, main)


def test_without_a_right_key_nothing_is_answered(tmp_path) -> None:
    async def main(place: Place) -> None:
        async with httpx.AsyncClient() as http:
            for key in (None, "mem-guess", place.ann[:-1], ""):
                for mode in ("auto", "legacy"):
                    with pytest.raises(BaseExceptionGroup) as raised:
                        async with place.client(key, mode) as client:
                            await client.list_tools()
                    assert raised.value.split(MCPError)[1] is None
                headers = {**ACCEPTED, **({"authorization": f"Bearer {key}"} if key else {})}
                assert (await http.post(place.url, json=HELLO, headers=headers)).status_code == 401

    with place(tmp_path) as there:
        run(there, main)
        with there.service.client as client:
            refused = client.post("/mcp", json=HELLO, headers={**ACCEPTED, "authorization": "Basic YW5uOng="})
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert refused.json()["error"]["type"] == "authentication_error"
            cookie = {**ACCEPTED, "cookie": f"memagent_key={there.ann}", "origin": "https://evil.example"}
            assert client.post("/mcp", json=HELLO, headers=cookie).status_code == 403
        assert there.model.requests == []


def test_without_keys_pages_of_other_sites_and_other_names_are_refused(tmp_path) -> None:
    async def main(place: Place) -> None:
        async with place.client(None) as client:
            assert told(await client.call_tool("ask_document", ASKED))["answer"] == "4821973"

    with place(tmp_path, keys=False) as there:
        run(there, main)
        with there.service.client as client:
            for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
                assert client.post("/mcp", json=HELLO, headers={**ACCEPTED, **headers}).status_code == 403


def test_without_the_extra_there_is_no_such_route_and_the_others_are_served(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("memagent.server.app.find_spec", lambda _: None)
    with in_process(model(), tmp_path) as client:
        assert client.post("/mcp", json=HELLO, headers=ACCEPTED).status_code == 404
        assert client.get("/ready").status_code == 200


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_call_that_is_cancelled_stops_its_reading_which_goes_on_when_asked(tmp_path, mode: str) -> None:
    async def main(place: Place) -> None:
        begun = asyncio.Event()

        async def progress(done: float, _: float | None, __: str | None) -> None:
            if done >= 2:
                begun.set()

        async with place.client(place.ann, mode) as client:
            call = asyncio.create_task(client.call_tool("ask_document", ASKED, progress_callback=progress))
            await asyncio.wait_for(begun.wait(), 60)
            call.cancel()
            await asyncio.wait([call])
        async with place.client(place.ann, mode) as client, asyncio.timeout(20):
            while True:
                [one] = told(await client.call_tool("list_readings", {}))["readings"]
                if one["status"] == "cancelled":
                    break
                await asyncio.sleep(0.05)
            asked = len(place.model.requests)
            await asyncio.sleep(0.5)
            assert len(place.model.requests) == asked
            answer = told(await client.call_tool("resume_reading", {"reading": one["reading"]}))
            assert answer["answer"] == "4821973"
            prompts = [json.dumps(request["messages"]) for request in place.model.requests if "<section>" in str(request)]
            assert len(prompts) - len(set(prompts)) <= 1  # the turn that was under way is asked again

    with place(tmp_path, delay=0.2) as there:
        run(there, main)


def test_a_service_that_ends_leaves_its_readings_to_go_on_with(tmp_path) -> None:
    async def main(place: Place) -> None:
        async with place.client(place.ann) as client:
            call = asyncio.create_task(client.call_tool("ask_document", ASKED))
            while len(place.model.requests) < 3:
                await asyncio.sleep(0.01)
            began = time.monotonic()
            assert await asyncio.to_thread(place.service.stop) == 0
            assert time.monotonic() - began < 4
            assert "the service ends" in said(await call)

    with place(tmp_path, delay=0.1) as there:
        run(there, main)
        there.service.start()
        headers: dict[str, Any] = {"headers": {"Authorization": f"Bearer {there.ann}"}}
        with there.service.client as client:
            [one] = client.get("/v1/readings", **headers).json()["readings"]
            found = ended(client, one["id"], **headers)
        assert (found["result"]["answer"], found["result"]["turns_resumed"] > 0) == ("4821973", True)
