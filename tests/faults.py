"""A real HTTP server that speaks chat completions and misbehaves on schedule.

Its "model" is a pure function of the messages, so that a reading through the faults can be compared with a clean one.
Faults come from a list (one for each request, then none) or from a function of the request's number, counted from 0.

    with FaultServer(faults=[Fault("status", status=503), None, Fault("reset")]) as server:
        OpenAIEngine("scripted", server.url, backoff=Backoff(base=0.01)) ...
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from typing import Any, Literal, TypeAlias

Messages: TypeAlias = list[dict[str, str]]
Kind: TypeAlias = Literal[
    "status",  # answers `status` with `headers` and `body`
    "stall",  # sends nothing until the client leaves or the server closes
    "reset",  # resets the connection in the middle of the body
    "drop",  # closes the connection before any byte of an answer
    "malformed",  # status 200, body that is not JSON
    "no_choices",  # status 200, an empty list of choices
    "null",  # status 200, content null
    "over_long",  # ignores max_tokens: the reply forty times over
    "think",  # thinking inside the text, between <think> and </think>
    "drip",  # a right reply, a few bytes at a time, `seconds` in all
    "cut",  # answers what is left of a prompt cut to `tokens`
    "shorten",  # answers the first `tokens` of a longer prompt
    "undercount",  # counts one token of a prompt in three
    "uncounted",  # says nothing of tokens
    "uncached",  # counts only what no earlier prompt began with
]


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to misbehave; the fields that a kind does not name are not used by it."""

    kind: Kind
    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = '{"error": {"message": "a fault on schedule"}}'
    seconds: float = 0.5
    tokens: int = 1


def echo(messages: Messages) -> str:
    """The default model: the last words of what it was given."""
    return " ".join(" ".join(message["content"] for message in messages).split()[-8:])


class FaultServer:
    """Serves on a loopback port, a free one without `port`, in threads of its own while the `with` block runs.

    `requests` holds the body of every chat request, `headers` its headers (names in lower case), `paths` the target of each
    request of any kind, `peak` the most that were
    under way at a time. Tokens are words. `context`, when given, is the window: longer prompts are refused in vLLM's words.
    `delay` is how many seconds every request takes. `routes` are further paths: a text, another JSON value, or a function
    of the body.
    """

    def __init__(
        self,
        model: Callable[[Messages], str] = echo,
        *,
        faults: Iterable[Fault | None] | Callable[[int], Fault | None] = (),
        models: Iterable[str] = ("scripted",),
        routes: Mapping[str, Any] | None = None,
        context: int | None = None,
        delay: float = 0.0,
        port: int = 0,
    ) -> None:
        self.model = model
        self.routes: dict[str, Any] = {"/v1/models": {"data": [{"id": name} for name in models]}, **(routes or {})}
        self.context = context
        self.delay = delay
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.peak = 0
        self.closing = threading.Event()
        self.left = threading.Event()  # a client went away while its reply was held back
        self._under_way = 0
        self._seen: list[list[str]] = []
        self._lock = threading.Lock()
        self._fault = faults if callable(faults) else _in_order(list(faults))
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> FaultServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def enter(self, body: dict[str, Any], headers: Mapping[str, str]) -> Fault | None:
        """Records a request and returns the fault that is due."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(body)
            self.headers.append({name.lower(): value for name, value in headers.items()})
            self._under_way += 1
            self.peak = max(self.peak, self._under_way)
        return self._fault(number)

    def _cached(self, words: list[str]) -> int:
        """How many words at the beginning of a prompt began an earlier one, too."""
        with self._lock:
            shared = max(
                (
                    sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(words, seen, strict=False)))
                    for seen in self._seen
                ),
                default=0,
            )
            self._seen.append(words)
        return shared

    def leave(self) -> None:
        """Records that a request is done."""
        with self._lock:
            self._under_way -= 1

    def complete(self, body: dict[str, Any], *, fault: Fault | None) -> dict[str, Any]:
        """The chat completion for a request, with the faults that only change what it says."""
        messages = body["messages"]
        prompt = sum(len(message["content"].split()) for message in messages)
        words = self.model(messages).split(" ")
        limit = int(body.get("max_tokens") or body.get("max_completion_tokens") or 1 << 30)
        text, finish = " ".join(words[:limit]), "length" if len(words) > limit else "stop"
        if fault is not None and fault.kind == "over_long":
            text, finish = " ".join([text] * 40), "stop"
        if fault is not None and fault.kind == "think":
            text = f"<think>the user wants {text}</think>\n\n{text}"
        if fault is not None and fault.kind == "cut":
            prompt = fault.tokens
        if fault is not None and fault.kind == "shorten":
            prompt = min(prompt, fault.tokens)
        if fault is not None and fault.kind == "undercount":
            prompt = 7 + prompt // 3
        if fault is not None and fault.kind == "uncached":
            prompt -= self._cached(messages[-1]["content"].split())
        content = None if fault is not None and fault.kind == "null" else text
        choices = [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content}}]
        return {
            "id": "chat-0",
            "object": "chat.completion",
            "model": body.get("model"),
            "choices": [] if fault is not None and fault.kind == "no_choices" else choices,
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": len(text.split()),
                "prompt_tokens_details": {"cached_tokens": 0},
            },
        }


def _in_order(faults: list[Fault | None]) -> Callable[[int], Fault | None]:
    return lambda number: faults[number] if number < len(faults) else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    owner: FaultServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are part of the tests: no traceback."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.server.owner.paths.append(self.path)
        self._route({})

    def _route(self, body: dict[str, Any]) -> None:
        answer = self.server.owner.routes.get(self.path.partition("?")[0])
        if answer is None:
            self._send(404, '{"detail": "Not Found"}')
        else:
            found = answer(body) if callable(answer) else answer
            self._send(200, found if isinstance(found, str) else json.dumps(found))

    def do_POST(self) -> None:
        self.server.owner.paths.append(self.path)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.partition("?")[0] != "/v1/chat/completions":
            self._route(body)
            return
        owner = self.server.owner
        fault = owner.enter(body, self.headers)
        try:
            time.sleep(owner.delay)
            self._answer(body, fault)
        finally:
            owner.leave()

    def _answer(self, body: dict[str, Any], fault: Fault | None) -> None:
        owner = self.server.owner
        reply = owner.complete(body, fault=fault)
        size = reply["usage"]["prompt_tokens"] + int(body.get("max_tokens") or 0)
        kind = fault.kind if fault is not None else ""
        if kind == "uncounted":
            del reply["usage"]
        if fault is not None and kind == "status":
            self._send(fault.status, fault.body, fault.headers)
        elif kind == "stall":
            self._hold()
        elif kind == "drop":
            self.close_connection = True
        elif kind == "malformed":
            self._send(200, '{"choices": [{"message": {"content": "half a rep')
        elif owner.context is not None and size > owner.context:
            message = f"This model's maximum context length is {owner.context} tokens. However, you requested {size} tokens"
            self._send(400, json.dumps({"error": {"message": message, "type": "BadRequestError", "code": 400}}))
        elif kind == "reset":
            self._reset(json.dumps(reply).encode())
        elif fault is not None and kind == "drip":
            self._drip(json.dumps(reply).encode(), fault.seconds)
        else:
            self._send(200, json.dumps(reply))

    def _send(self, status: int, body: str, headers: Mapping[str, str] | None = None) -> None:
        data = body.encode()
        self._head(status, len(data), headers)
        self.wfile.write(data)

    def _head(self, status: int, size: int, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(size))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()

    def _hold(self) -> None:
        self.connection.settimeout(0.02)
        while not self.server.owner.closing.is_set():
            try:
                if not self.connection.recv(1):
                    self.server.owner.left.set()
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        self.close_connection = True

    def _reset(self, data: bytes) -> None:
        self._head(200, len(data))
        self.wfile.write(data[: len(data) // 2])
        self.wfile.flush()
        # Lingering for zero seconds turns the close into a reset.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def _drip(self, data: bytes, seconds: float) -> None:
        self._head(200, len(data))
        steps = 20
        for start in range(0, len(data), -(-len(data) // steps)):
            self.wfile.write(data[start : start + -(-len(data) // steps)])
            self.wfile.flush()
            if self.server.owner.closing.wait(seconds / steps):
                break
