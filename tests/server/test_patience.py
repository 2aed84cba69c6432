"""Clients that send slowly: those that go on are waited for, those that do not are not."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from memagent.server import patience
from tests.server.service import served
from tests.server.test_service import Held, model
from tests.test_follow_up import TEXT

HEAD = b"POST /v1/readings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
BODY = json.dumps({"question": "the code?", "text": TEXT}).encode()
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


@pytest.fixture
def connection(tmp_path, monkeypatch) -> Iterator[socket.socket]:
    monkeypatch.setattr(patience, "SECONDS", 1.5)
    with (
        served(model(), tmp_path) as client,
        socket.create_connection(("127.0.0.1", client.base_url.port), timeout=30) as found,
    ):
        yield found


def closed(connection: socket.socket) -> bool:
    """Whether the service closes a connection without an answer."""
    try:
        return connection.recv(1000) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"Content-Length: 500\r\n\r\n{"])
def test_a_request_that_does_not_go_on_is_given_up(connection, sent) -> None:
    began = time.monotonic()
    connection.sendall(sent)
    assert closed(connection)
    assert 1 < time.monotonic() - began < 10


def test_a_head_in_drops_is_given_up(connection) -> None:
    began = time.monotonic()
    with suppress(ConnectionError):
        while time.monotonic() - began < 10:
            connection.sendall(b"x")
            time.sleep(0.1)
    assert time.monotonic() - began < 10


def test_a_body_that_goes_on_is_waited_for(connection) -> None:
    size = len(WHOLE) // 6
    for start in range(0, len(WHOLE), size):
        connection.sendall(WHOLE[start : start + size])
        time.sleep(0.4)
    assert connection.recv(1000).startswith(b"HTTP/1.1 202 ")
    connection.sendall(HEAD)  # the next request of the same connection
    assert closed(connection)


def test_an_answer_may_take_longer(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(patience, "SECONDS", 0.2)
    held = Held()
    with served(model(held), tmp_path) as client:
        id = client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()["id"]
        with client.stream("GET", f"/v1/readings/{id}/events") as stream:
            lines = stream.iter_lines()
            next(lines)
            time.sleep(0.5)
            held.go.set()
            assert "event: end" in list(lines)
