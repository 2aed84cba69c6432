"""A model server that costs as little as it can, in a process of its own, and notes when each conversation asked it.

    python -m benchmarks.stub DELAY PORT

A prompt is one of the conversation whose number stands in it as `conversation N`. `GET /v1/times` gives for each of them
the moments at which its requests came and were answered, in seconds, and forgets them.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import uvicorn

from tests.server.service import free_port

# By conversation: when each request came, and when it was answered.
Times: TypeAlias = dict[str, list[tuple[float, float]]]

_NUMBER = re.compile(rb"conversation (\d+)")
_REPLY = {
    "id": "chat-0",
    "object": "chat.completion",
    "model": "stub",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "noted"}}],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 1},
}


class Stub:
    """An ASGI application that answers "noted" after `delay` seconds."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._times: Times = defaultdict(list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] == "POST":
            answer = await self._complete(receive)
        elif scope["path"] == "/v1/times":
            answer, self._times = dict(self._times), defaultdict(list)
        else:
            answer = {"data": [{"id": "stub"}]}
        body = json.dumps(answer).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _complete(self, receive: Any) -> dict[str, Any]:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        came = time.perf_counter()
        await asyncio.sleep(self._delay)
        if number := _NUMBER.search(body):
            self._times[number[1].decode()].append((came, time.perf_counter()))
        return _REPLY


@contextmanager
def stub(delay: float) -> Iterator[str]:
    """The base URL of a stub in a process of its own."""
    port = free_port()
    with subprocess.Popen([sys.executable, "-m", "benchmarks.stub", str(delay), str(port)]) as process:
        url = f"http://127.0.0.1:{port}/v1"
        while process.poll() is None:
            try:
                times(url)
                break
            except urllib.error.URLError:
                time.sleep(0.05)
        yield url
        process.terminate()


def times(url: str) -> Times:
    """What a stub has noted since this was last asked."""
    with urllib.request.urlopen(f"{url}/times") as answer:
        found: Times = json.load(answer)
    return found


def main(delay: float, port: int) -> None:
    # Not by a socket of ours: uvicorn leaves Nagle's algorithm on for those, which costs 40 ms a request.
    uvicorn.run(Stub(delay), port=port, log_level="error", access_log=False, backlog=4096)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
