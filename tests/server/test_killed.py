"""A service that is killed under load: every reading that it accepted ends as it would have."""

from __future__ import annotations

import random
import time

from benchmarks import service_kills
from tests.faults import FaultServer
from tests.server.service import ServiceProcess, ended
from tests.test_follow_up import TEXT, served

SIZES = ["--chunk-tokens", "100", "--memory-tokens", "50"]


def test_what_was_accepted_is_answered_however_often_the_service_is_killed(tmp_path) -> None:
    rng = random.Random(28)
    with FaultServer(served, delay=0.01) as server:
        there = ["--model", "scripted", "--base-url", server.url, "--readings", "3", *SIZES]
        service, ids = ServiceProcess(tmp_path / "home", there), list[str]()
        service.start()
        for _ in range(4):
            with service.client as client:
                for _ in range(3):
                    text = f"Text {len(ids)}.\n{TEXT}"
                    begun = client.post("/v1/readings", json={"question": "the code?", "text": text})
                    assert begun.status_code == 202
                    ids.append(begun.json()["id"])
                time.sleep(rng.uniform(0.0, 0.6))
            service.kill()
            service.start()
        with service.client as client:
            found = [ended(client, id) for id in ids]
            turns = [client.get(f"/v1/readings/{id}/events").text.count("event: turn") for id in ids]
        assert [(one["status"], one["result"]["answer"], one["result"]["status"]) for one in found] == [
            ("answered", "4821973", "supported")
        ] * 12
        assert turns == [one["result"]["turns"] for one in found]
        assert len(set(turns)) == 1
        assert sum(one["result"]["turns_resumed"] for one in found) > 0
        assert service.stop() == 0


def test_killed_while_readings_come_in_nothing_is_lost_done_twice_or_counted_twice(tmp_path) -> None:
    outcome = service_kills.run(tmp_path, kills=3, seed=4)
    assert outcome.different == []
    assert outcome.uncounted == 0
    assert outcome.accepted > 3
    assert outcome.resumed > 0
    assert 0 <= outcome.calls <= outcome.kills * service_kills.AT_ONCE


def test_a_service_that_is_told_to_end_ends_and_goes_on_later(tmp_path) -> None:
    with FaultServer(served, delay=0.05) as server:
        there = ["--model", "scripted", "--base-url", server.url, *SIZES]
        service = ServiceProcess(tmp_path / "home", there)
        service.start()
        with service.client as client:
            id = client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()["id"]
            while not client.get(f"/v1/readings/{id}").json().get("progress", {}).get("turns"):
                time.sleep(0.01)
            with client.stream("GET", f"/v1/readings/{id}/events") as stream:  # which does not hold it up
                lines = stream.iter_lines()
                next(lines)
                began = time.monotonic()
                assert service.stop() == 0
                assert time.monotonic() - began < 4
                assert "event: end" not in list(lines)
        service.start()
        with service.client as client:
            found = ended(client, id)
        assert (found["result"]["answer"], found["result"]["turns_resumed"] > 0) == ("4821973", True)
        service.stop()
