"""The log of a service: a line for each request and for each reading that ends, and nothing that anybody wrote."""

from __future__ import annotations

import errno
import json
import logging
import sqlite3

import pytest

from memagent.models.replies import failure
from memagent.server.keys import add_key
from memagent.server.log import Lines, _Seldom, line_of_request, noted
from tests.faults import Fault, FaultServer
from tests.server.service import ServiceProcess, ended
from tests.test_follow_up import TEXT, served

SIZES = ["--chunk-tokens", "300", "--memory-tokens", "120"]
FAULTS = [Fault("status", status=503, body='{"error": "Line 30 tells of nothing"}'), Fault("null"), Fault("malformed")]


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_log_of_a_service_has_no_text_and_no_keys(tmp_path, form: str) -> None:
    keys = tmp_path / "keys.txt"
    key = add_key(keys, "ann")
    with FaultServer(served, faults=FAULTS) as server:
        url = server.url.replace("//", "//bob:password@") + "?token=hidden"
        there = ["--model", "scripted", "--base-url", url, "--keys", str(keys), "--log-format", form, *SIZES]
        service = ServiceProcess(tmp_path / "home", there, MEMAGENT_API_KEY="sk-0123456789abcdef")
        service.start()
        headers = {"Authorization": f"Bearer {key}"}
        with service.client as client:
            asked = {"question": "Who knows the code?", "text": TEXT}
            id = client.post("/v1/readings", json=asked, headers=headers).json()["id"]
            assert ended(client, id, headers=headers)["result"]["answer"] == "4821973"
            again = client.post(f"/v1/readings/{id}/ask", json={"question": "Who knows the code?"}, headers=headers)
            assert ended(client, again.json()["id"], headers=headers)["status"] == "answered"
            client.post("/v1/readings", json={"question": "Who knows the code?"}, headers=headers)
            client.post("/v1/readings", json=asked, headers={"Authorization": "Bearer mem-guess"})
            client.get("/v1/readings/4821973", headers=headers)
            client.get("/Line 30?tells=of&the=sea")
        assert service.stop() == 0
    lines = service.log.splitlines()
    requests, readings = ([line for line in lines if kind in line] for kind in REQUESTS[form])
    assert len(readings) == 2
    for part in PARTS[form]:
        assert part in readings[0]
    codes = ["202", "400", "401", "404"]
    assert [next(line for line in requests if code in line) for code in codes]
    assert len([line for line in lines if "TransientError, HTTP 503" in line]) == 1
    assert len([line for line in lines if "GarbledReplyError" in line]) == 2
    written = (key, key[4:], "mem-guess", "sk-0123", "password", "hidden", "Who knows", "tells of", "tells=of", "4821973")
    assert not [(text, line) for text in written for line in lines if text in line]
    if form == "json":
        told = [json.loads(line) for line in lines]
        one = next(line for line in told if line["message"] == "request" and line["code"] == 202)
        assert (one["method"], one["route"], one["key"], one["level"]) == ("POST", "/v1/readings", "ann", "info")
        assert (one["client"], one["reading"]) == ("127.0.0.1", id)
        looked = [line for line in told if line.get("route") == "/v1/readings/{id}" and line["code"] == 200]
        assert {line["reading"] for line in looked} == {id, again.json()["id"]}
        (asked_again,) = [line for line in told if line.get("route") == "/v1/readings/{id}/ask"]
        assert asked_again["reading"] == again.json()["id"]
        (unknown,) = [line for line in told if line.get("code") == 404 and line["route"] == "/v1/readings/{id}"]
        assert "reading" not in unknown


REQUESTS = {"text": (" request ", " reading "), "json": ('"message": "request"', '"message": "reading"')}
PARTS = {
    "text": ("key=ann", "status=answered", "answer=supported", "turns=", "tokens=", "seconds="),
    "json": ('"key": "ann"', '"status": "answered"', '"answer": "supported"', '"turns": ', '"tokens": ', '"seconds": '),
}


@pytest.mark.parametrize("form", ["text", "json"])
def test_of_an_error_its_kind_and_its_place_are_logged(form, caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("memagent.test")
    try:
        raise ValueError("the captain is Ann\nand a second line")
    except ValueError as error:
        log.exception("broken: %s", error)
        log.error(error)
    log.warning("again: %s (%d)", failure(503, "the captain is Ann"), 3)
    log.warning("%(a)s and\nmore", {"a": 1})
    full = sqlite3.OperationalError("the captain")
    full.sqlite_errorname = "SQLITE_FULL"
    log.error("written: %s, %s", OSError(errno.ENOSPC, "the captain"), full)
    logging.getLogger("asyncio").error("Task exception was never retrieved\nfuture: <Task exception='the captain is Ann'>")
    lines = [Lines(form).format(record) for record in caplog.records]
    assert not [line for line in lines if "captain" in line or "\n" in line]
    assert "broken: ValueError" in lines[0]
    assert "test_log.py:" in lines[0]
    assert "ValueError" in lines[1]
    assert "TransientError, HTTP 503 (3)" in lines[2]
    assert "written: OSError ENOSPC, OperationalError SQLITE_FULL" in lines[4]
    assert "Task exception was never retrieved" in lines[5]


def test_a_form_of_log_that_there_is_not_is_refused(tmp_path) -> None:
    from typer.testing import CliRunner

    from memagent.cli import app

    result = CliRunner().invoke(app, ["serve", "--log-format", "xml"])
    assert result.exit_code == 2
    assert "json" in result.stderr


def test_that_there_are_no_file_descriptors_is_said_once_a_minute(monkeypatch) -> None:
    now = iter([100.0, 100.1, 159.9, 160.1, 160.2])
    monkeypatch.setattr("memagent.server.log.time.monotonic", lambda: next(now))
    seldom = _Seldom()
    said = ("socket.accept() out of system resource\nsocket: 7", "Task exception was never retrieved")
    no_room, another = (logging.LogRecord("asyncio", logging.ERROR, "", 0, one, (), None) for one in said)
    assert [seldom(no_room) for _ in range(5)] == [True, False, False, True, False]
    assert [seldom(another) for _ in range(2)] == [True, True]


def test_what_a_line_tells_ends_with_its_request() -> None:
    with line_of_request() as fields:
        noted(reading="r-1")
    noted(reading="r-2")
    assert fields == {"reading": "r-1"}
