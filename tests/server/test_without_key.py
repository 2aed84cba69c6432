"""What a service that has keys answers those who have none: what the threat model lists, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient

from memagent.models.open import OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.server.guard import Guard
from memagent.server.keys import add_key
from memagent.server.run import Place, built
from memagent.server.values import Limits
from tests.server.service import OPTIONS
from tests.test_follow_up import script

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "threats.md"
BODIES = {
    "application/json": b"{no json",
    "multipart/form-data": b"no form",
    "application/x-www-form-urlencoded": b"key=mem-wrong",
}


@pytest.fixture
def app(tmp_path) -> Iterator[Guard]:
    add_key(tmp_path / "keys.txt", "ann")
    with ExitStack() as stack:
        place = Place(host="127.0.0.1", port=0, folder=tmp_path / "data", keys=tmp_path / "keys.txt")
        opened = OpenModel(engine=ScriptedModel(script))
        yield built(stack, place, opened, "scripted", None, OPTIONS, Limits())[0]


def routes_of(app: Guard) -> set[tuple[str, str]]:
    """Methods and paths. A route without methods takes all; HEAD goes with GET."""
    found = iter_route_contexts(app._app.routes)
    methods = ((method, route.path) for route in found for method in route.methods or ("GET", "POST", "DELETE"))
    return {(method, path) for method, path in methods if method != "HEAD"}


def test_without_a_key_the_routes_of_the_threat_model_answer_and_no_others(app) -> None:
    section = GUIDE.read_text().split("## What answers without a key\n")[1].split("\n## ")[0]
    listed = set(re.findall(r"^\| `([A-Z]+) (\S+)` \|", section, re.MULTILINE))
    routes = routes_of(app)
    assert {("POST", "/v1/files"), ("GET", "/"), ("POST", "/mcp"), ("GET", "/metrics")} < routes
    answering = set()
    with TestClient(app, follow_redirects=False) as client:
        for method, path in routes:
            address = path.format(id="reading-1", name="service.css")
            for kind, body in BODIES.items():
                sent = {} if method == "GET" else {"content": body, "headers": {"content-type": kind}}
                if client.request(method, address, **sent).status_code != 401:
                    answering.add((method, path))
        assert client.get("/no-route").status_code == 404
        assert client.put("/v1/files").status_code == 405
    assert answering == listed
