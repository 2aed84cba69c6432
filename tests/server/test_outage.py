"""What the service does while the model's server is away, or its disk is full: it loses nothing, and says so."""

from __future__ import annotations

import asyncio
import errno
import io
import socket
import sqlite3
import time
from contextlib import ExitStack, asynccontextmanager, contextmanager
from urllib.parse import urlsplit

import httpx2 as httpx
import openai
import pytest

from memagent.errors import ConfigError, JournalError, ModelUnavailableError
from memagent.journal import Journal
from memagent.journal.database import explained
from memagent.server import outage, store
from memagent.server.jobs import _Live
from memagent.server.keys import LOCAL, add_key
from memagent.server.outage import DISK, MODEL, Outage, away
from memagent.server.run import Place, built
from memagent.server.state import text_part
from memagent.server.store import Store
from memagent.server.values import Job, Limits
from tests.faults import Fault, FaultServer
from tests.server.service import OPTIONS, ServiceProcess, ended, free_port, served
from tests.server.test_service import Held, model
from tests.test_follow_up import TEXT, script
from tests.test_follow_up import served as by_server

ASKED = {"question": "the code?", "text": TEXT}
SIZES = ["--chunk-tokens", "100", "--memory-tokens", "50"]


@pytest.fixture(autouse=True)
def soon(monkeypatch) -> None:
    monkeypatch.setattr(outage, "_PAUSES", (0.02, 0.05))


class Away:
    """A script that answers no turn until it is back."""

    def __init__(self) -> None:
        self.back, self.turns = False, 0

    def __call__(self, turn):
        self.turns += 1
        return script(turn) if self.back else ModelUnavailableError("no connection")


def until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def test_readings_wait_for_a_model_that_is_away_and_go_on_when_it_is_back(tmp_path) -> None:
    there = Away()
    with served(model(there), tmp_path) as client:
        ids = [client.post("/v1/readings", json=ASKED).json()["id"] for _ in range(12)]
        until(lambda: client.get("/ready").json() == {"status": "ready", "waiting": MODEL})
        until(lambda: client.get(f"/v1/readings/{ids[0]}").json()["status"] == "queued")
        until(lambda: client.get(f"/v1/readings/{ids[0]}").json()["progress"].get("held") == MODEL)
        assert "memagent_up 0.0" in client.get("/metrics").text
        late = client.post("/v1/readings", json=ASKED)
        assert late.status_code == 202, "further ones are taken, and wait as well"
        there.back = True
        found = [ended(client, id) for id in [*ids, late.json()["id"]]]
        assert [(one["status"], one["result"]["answer"]) for one in found] == [("answered", "4821973")] * 13
        assert client.get("/ready").json() == {"status": "ready"}
        counted = client.get("/metrics").text
        assert "memagent_up 1.0" in counted
        assert 'memagent_readings_total{status="answered"} 13.0' in counted
        assert "memagent_failures_total{" not in counted


def test_during_an_outage_one_reading_at_a_time_tries_again(tmp_path) -> None:
    there = Away()
    with served(model(there), tmp_path, limits=Limits(readings=4)) as client:
        ids = [client.post("/v1/readings", json=ASKED).json()["id"] for _ in range(8)]
        until(lambda: client.get("/ready").json().get("waiting") == MODEL)
        seen, began = there.turns, time.monotonic()
        until(lambda: there.turns > seen + 5)
        tries = there.turns - seen
        assert tries <= (time.monotonic() - began) / 0.05 + 5, "a try every 0.05 s, not one for each reading"
        there.back = True
        assert {ended(client, id)["status"] for id in ids} == {"answered"}


def test_a_reading_fails_once_its_patience_is_over_and_can_be_resumed(tmp_path) -> None:
    there = Away()
    with served(model(there), tmp_path, limits=Limits(patience=0.2)) as client:
        id = client.post("/v1/readings", json=ASKED).json()["id"]
        failed = ended(client, id)
        assert (failed["status"], failed["error"]) == ("failed", "no connection")
        counted = client.get("/metrics").text
        assert 'memagent_failures_total{kind="model"} 1.0' in counted
        assert "memagent_up 0.0" in counted, "nobody waits any more, but the server has not answered since"
        there.back = True
        again = client.post(f"/v1/readings/{id}/resume")
        assert (again.status_code, again.json()["error"]) == (202, None)
        assert ended(client, id)["result"]["answer"] == "4821973"
        assert "memagent_up 1.0" in client.get("/metrics").text
        refused = client.post(f"/v1/readings/{id}/resume")
        assert (refused.status_code, "this one is answered" in refused.text) == (409, True)


def test_a_reading_that_alone_finds_the_model_away_fails_and_holds_up_no_other(tmp_path) -> None:
    def poisoned(turn):
        return ModelUnavailableError("error 500") if "POISON" in str(turn) else script(turn)

    with served(model(poisoned), tmp_path, limits=Limits(readings=1, patience=1)) as client:
        bad = client.post("/v1/readings", json={**ASKED, "text": f"POISON. {TEXT}"}).json()["id"]
        good = [client.post("/v1/readings", json=ASKED).json()["id"] for _ in range(6)]
        assert {ended(client, id)["status"] for id in good} == {"answered"}
        assert (ended(client, bad)["status"], ended(client, bad)["error"]) == ("failed", "error 500")


@pytest.mark.parametrize("away", [True, False], ids=["away", "refuses"])
def test_clients_are_not_told_where_the_model_is(tmp_path, away) -> None:
    with FaultServer(by_server, faults=lambda _: Fault("status", status=404)) as server:
        url = f"http://127.0.0.1:{free_port()}/v1" if away else server.url
        there = ["--model", "scripted", "--base-url", url, "--patience", "0", *SIZES]
        service = ServiceProcess(tmp_path / "home", there)
        service.start()
        with service.client as client:
            said = ended(client, client.post("/v1/readings", json=ASKED).json()["id"])["error"]
        assert ("the model's server: " if away else "HTTP 404") in said
        assert "127.0.0.1" not in said
        assert str(urlsplit(url).port) not in said
        assert service.stop() == 0


def test_readings_that_wait_for_the_model_can_be_cancelled_and_leave_no_outage(tmp_path) -> None:
    with served(model(Away()), tmp_path) as client:
        ids = [client.post("/v1/readings", json=ASKED).json()["id"] for _ in range(4)]
        until(lambda: client.get("/ready").json().get("waiting") == MODEL)
        for id in ids:
            assert client.post(f"/v1/readings/{id}/cancel").json()["status"] == "cancelled"
            assert client.delete(f"/v1/readings/{id}").status_code == 204
        until(lambda: client.get("/ready").json() == {"status": "ready"})


def test_a_deadline_counts_what_a_reading_waits(tmp_path) -> None:
    with served(model(Away()), tmp_path, limits=Limits(deadline=2)) as client:
        id = client.post("/v1/readings", json=ASKED).json()["id"]
        until(lambda: client.get(f"/v1/readings/{id}").json()["status"] == "failed")
        assert "the deadline of 2 s has passed" in client.get(f"/v1/readings/{id}").json()["error"]


def test_what_waits_for_the_model_is_in_the_queue(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(outage, "_PAUSES", (600.0,))
    keys = tmp_path / "keys.txt"
    ann, bob = ({"Authorization": f"Bearer {add_key(keys, name)}"} for name in ("ann", "bob"))
    with served(model(Away()), tmp_path / "data", keys=keys, limits=Limits(queue=1)) as client:
        id = client.post("/v1/readings", json=ASKED, headers=ann).json()["id"]
        until(lambda: client.get(f"/v1/readings/{id}", headers=ann).json()["progress"].get("held") == MODEL)
        assert client.post("/v1/readings", json=ASKED, headers=bob).status_code == 429


def test_while_others_are_answered_a_reading_fails_that_finds_the_model_away_again_and_again() -> None:
    live = _Live(Job(owner="ann", question="q"))
    assert [live.hold(outages, 600) for outages in (0, 0, 0, 1, 1, 1, 2)] == [True] * 7, (
        "two outages, and one success in each"
    )
    assert not live.hold(3, 600)
    assert not _Live(Job(owner="ann", question="q")).hold(0, 0)


def test_a_server_that_comes_late_is_waited_for_by_a_real_service(tmp_path) -> None:
    port = free_port()
    there = ["--model", "scripted", "--base-url", f"http://127.0.0.1:{port}/v1", *SIZES]
    service = ServiceProcess(tmp_path / "home", there)
    service.start()
    with service.client as client:
        ids = [client.post("/v1/readings", json=ASKED).json()["id"] for _ in range(3)]
        until(lambda: client.get("/ready").json().get("waiting") == MODEL)
        service.kill()
        service.start()
        with FaultServer(by_server, port=port):
            assert [ended(client, id)["result"]["answer"] for id in ids] == ["4821973"] * 3
    assert service.stop() == 0


def test_what_a_service_took_while_its_server_was_away_is_read_with_the_window_that_the_server_has(tmp_path) -> None:
    port = free_port()
    service = ServiceProcess(tmp_path / "home", ["--model", "scripted", "--base-url", f"http://127.0.0.1:{port}/v1"])
    service.start()
    with service.client as client:
        id = client.post("/v1/readings", json=ASKED).json()["id"]
        until(lambda: client.get("/ready").json().get("waiting") == MODEL)
        with FaultServer(by_server, port=port) as server:
            server.routes["/v1/models"] = {"data": [{"id": "scripted", "owned_by": "vllm", "max_model_len": 1024}]}
            found = ended(client, id)
            most = max(len(request["messages"][-1]["content"].split()) for request in server.requests)
        assert (found["status"], found["error"]) == ("answered", None)
        assert most < 1024
    assert service.stop() == 0


class NoRoom(io.BytesIO):
    """A file on a full disk: it is opened, and cannot be written."""

    def __init__(self, **_: object) -> None:
        super().__init__()

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


@contextmanager
def under_way(tmp_path):
    """A service with a reading whose turn waits: its client, the id of the reading, and what lets it go."""
    held = Held()
    with served(model(held), tmp_path) as client:
        id = client.post("/v1/readings", json=ASKED).json()["id"]
        assert held.reached.wait(30)
        yield client, id, held.go.set
        held.go.set()


def full(*_: object, **__: object) -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorname = "SQLITE_FULL"
    raise error


def test_a_disk_that_is_full_for_a_while_costs_no_reading(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("memagent.server.jobs._AGAIN", 0.02)
    with under_way(tmp_path) as (client, id, go), monkeypatch.context() as patched:
        patched.setattr(Store, "change", full)
        go()
        time.sleep(0.3)
        found = client.get(f"/v1/readings/{id}").json()
        assert (found["status"], found["error"]) == ("running", None)
        patched.undo()
        assert ended(client, id)["result"]["answer"] == "4821973"


def test_a_turn_that_the_journal_has_no_room_for_is_asked_again_once_it_has(tmp_path, monkeypatch) -> None:
    def no_room(self, entries) -> None:
        with explained(tmp_path):
            full()

    with under_way(tmp_path) as (client, id, go), monkeypatch.context() as patched:
        patched.setattr(Journal, "append_many", no_room)
        go()
        until(lambda: client.get(f"/v1/readings/{id}").json()["progress"].get("held") == DISK)
        patched.undo()
        assert ended(client, id)["result"]["answer"] == "4821973"


def test_those_who_listen_to_what_cannot_be_noted_do_not_keep_the_service_busy(tmp_path, monkeypatch) -> None:
    looks, job = 0, Store.job

    def counted(self, id, owner):
        nonlocal looks
        looks += 1
        return job(self, id, owner)

    with under_way(tmp_path) as (client, id, go), monkeypatch.context() as patched:
        patched.setattr(Store, "end", lambda *_, **__: 1 / 0)  # no disk that may have room again
        go()
        until(lambda: client.get("/metrics").text.count("memagent_running 0.0"))
        patched.setattr(Store, "job", counted)
        events = client.stream("GET", f"/v1/readings/{id}/events", timeout=1)
        with pytest.raises(httpx.TimeoutException), events as stream:
            list(stream.iter_lines())
        assert looks < 10
        assert client.get(f"/v1/readings/{id}").json()["status"] == "running", "for the next start"


def test_a_full_disk_is_said_in_the_form_of_openai_and_by_ready(tmp_path, monkeypatch) -> None:
    with served(model(), tmp_path) as client:
        monkeypatch.setattr(Store, "add", full)
        refused = client.post("/v1/readings", json=ASKED)
        assert (refused.status_code, refused.json()["error"]["type"]) == (507, "server_error")
        assert refused.json()["error"]["message"].startswith(DISK)
        monkeypatch.setattr(Store, "add", lambda *_: 1 / 0)
        broken = client.post("/v1/readings", json=ASKED)
        assert broken.status_code == 500
        assert broken.json()["error"]["message"] == "an error in memagent (ZeroDivisionError); the log has more"
        monkeypatch.setattr(store.tempfile, "TemporaryFile", NoRoom)
        assert client.get("/ready").json() == {"status": "not ready", "reason": DISK}


def test_what_is_away_is_told_from_what_is_broken() -> None:
    def caused(error: Exception, cause: BaseException) -> Exception:
        error.__cause__ = cause
        return error

    assert away(ModelUnavailableError("x")) == MODEL
    assert away(OSError(errno.ENOSPC, "full")) == DISK
    busy = sqlite3.OperationalError("x")
    assert away(busy) is None
    busy.sqlite_errorname = "SQLITE_FULL"
    assert away(caused(JournalError("x"), busy)) == DISK
    for other in (OSError(errno.ENOENT, "x"), ConfigError("x"), caused(JournalError("x"), KeyError("y")), TimeoutError()):
        assert away(other) is None


def test_an_outage_is_tried_less_and_less_often(monkeypatch) -> None:
    now = 0.0
    monkeypatch.setattr(outage, "_PAUSES", (1.0, 4.0))
    monkeypatch.setattr(time, "monotonic", lambda: now)
    found = Outage()
    assert found.may_try()
    assert found.pause is None
    found.begin(MODEL)
    assert found.pause == 1.0
    now = 0.5
    found.begin(MODEL)
    assert found.pause == 0.5, "others that fail meanwhile do not make it longer"
    assert not found.may_try()
    now = 1.0
    assert (found.may_try(), found.may_try(), found.pause) == (True, False, None)
    found.begin(MODEL)
    assert found.pause == 4.0
    now = 5.0
    assert found.may_try()
    found.untried()
    assert found.may_try()
    assert (found.end(), found.end(), found.over, found.may_try()) == (True, False, 1, True)


# The end of a service


def test_a_second_service_on_one_folder_is_refused(tmp_path) -> None:
    with FaultServer(by_server, delay=0.05) as server:
        there = ["--model", "scripted", "--base-url", server.url, *SIZES]
        first = ServiceProcess(tmp_path / "home", there)
        first.start()
        with first.client as client:
            id = client.post("/v1/readings", json=ASKED).json()["id"]
            second = ServiceProcess(tmp_path / "home", there)
            second.launch()
            assert second.process is not None
            assert second.process.wait(60) == 2
            assert "another service has its data in" in second.log
            assert ended(client, id)["status"] == "answered"
        taken = ServiceProcess(tmp_path / "other", there)
        taken.port = first.port
        taken._command[taken._command.index("--port") + 1] = str(first.port)
        taken.launch()
        assert taken.process is not None
        assert taken.process.wait(60) == 2
        said = " ".join(taken.log.split())
        assert f"cannot serve on 127.0.0.1, port {first.port}: Address already in use" in said
        assert "choose another --host or --port" in said
        assert "for OpenAI clients" not in said
        assert first.stop() == 0


def test_a_host_with_an_address_that_this_machine_has_not_is_served_at_the_others(tmp_path, monkeypatch) -> None:
    def both(host, port, **_):
        return [(socket.AF_INET, 1, 6, "", (address, port)) for address in ("192.0.2.1", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    [bound] = Place(host="both", port=0, folder=tmp_path).bound()
    with bound:
        assert bound.getsockname()[0] == "127.0.0.1"
        with pytest.raises(ConfigError, match="Address already in use"):
            Place(host="both", port=bound.getsockname()[1], folder=tmp_path).bound()
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, **_: both(host, port)[:1])
    with pytest.raises(ConfigError, match="cannot serve on both, port 0: Cannot assign"):
        Place(host="both", port=0, folder=tmp_path).bound()


def test_who_waits_when_the_service_ends_is_told_so_and_where_the_answer_will_be(tmp_path) -> None:
    with FaultServer(by_server, delay=0.3) as server:
        service = ServiceProcess(tmp_path / "home", ["--model", "scripted", "--base-url", server.url, *SIZES])
        service.start()
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{service.port}/v1", api_key="none", max_retries=2)
        said = [{"role": "user", "content": f"{TEXT}\n\nthe code?"}]

        async def ask() -> str:
            asking = asyncio.create_task(
                asyncio.to_thread(client.chat.completions.create, model="memagent", messages=said)  # type: ignore[arg-type]
            )
            await asyncio.to_thread(until, lambda: server.requests)
            assert await asyncio.to_thread(service.stop) == 0
            with pytest.raises(openai.InternalServerError) as raised:
                await asking
            assert raised.value.status_code == 503
            return str(raised.value)

        told = asyncio.run(ask())
        assert "goes on when it starts again: look at /v1/readings/reading-" in told
        assert "Exception in ASGI" not in service.log
        id = told[told.index("reading-") :].partition(" ")[0]
        service.start()
        with service.client as looking:
            assert ended(looking, id)["result"]["answer"] == "4821973"
            assert len(looking.get("/v1/readings").json()["readings"]) == 1, "the client did not send it again"
        assert service.stop() == 0


def test_a_service_that_drains_answers_but_takes_nothing_more(tmp_path) -> None:
    with FaultServer(by_server, delay=0.05) as server:
        there = ["--model", "scripted", "--base-url", server.url, "--drain", "30", *SIZES]
        service = ServiceProcess(tmp_path / "home", there)
        service.start()
        assert service.process is not None
        with service.client as client:
            id = client.post("/v1/readings", json=ASKED).json()["id"]
            service.process.terminate()
            until(lambda: client.get("/ready").status_code == 503)
            assert client.get("/ready").json() == {"status": "shutting down"}
            refused = client.post("/v1/readings", json=ASKED)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
            assert ended(client, id)["status"] == "answered", "what was taken goes on"
        assert service.stop() == 0, "being told once more ends it at once"


def test_a_model_server_that_answers_errors_for_a_moment_costs_no_reading(tmp_path) -> None:
    def broken(number: int) -> Fault | None:
        return Fault("status", status=503) if 2 <= number < 14 else None

    with FaultServer(by_server, faults=broken) as server:
        service = ServiceProcess(tmp_path / "home", ["--model", "scripted", "--base-url", server.url, *SIZES])
        service.start()
        with service.client as client:
            ids = [client.post("/v1/readings", json=ASKED).json()["id"] for _ in range(2)]
            assert {ended(client, id)["status"] for id in ids} == {"answered"}
        assert service.stop() == 0


# What comes at the same time


@asynccontextmanager
async def running(tmp_path, script, **limits):
    """A service in this event loop, and a function that has a document read."""
    with ExitStack() as stack:
        place = Place(host="127.0.0.1", port=0, folder=tmp_path)
        _, service = built(stack, place, model(script), "scripted", None, OPTIONS, Limits(**limits))
        await service.jobs.start()

        async def begin() -> Job:
            return await service.begin(Job(owner=LOCAL, question="the code?"), [text_part(TEXT)])

        yield service.jobs, begin
        await service.jobs.close()


def test_a_job_that_is_cancelled_before_its_first_step_keeps_no_place(tmp_path) -> None:
    async def whole() -> list[str]:
        async with running(tmp_path, script, readings=1) as (jobs, begin):
            first = await begin()
            return [(await jobs.cancel(first)).status, (await jobs.wait(await begin())).status]

    assert asyncio.run(asyncio.wait_for(whole(), 60)) == ["cancelled", "answered"]


def test_what_the_journal_has_lost_holds_up_no_other(tmp_path, monkeypatch) -> None:
    def gone(*_: object) -> None:
        raise JournalError("no such reading")

    async def whole() -> list[str]:
        held = Held()
        async with running(tmp_path, held, readings=1) as (jobs, begin):
            first = await begin()
            await asyncio.to_thread(held.reached.wait, 30)
            second = await begin()
            with monkeypatch.context() as patched:
                patched.setattr(jobs.desk.journal, "show", gone)
                ending = asyncio.create_task(jobs.cancel(first))
                await asyncio.sleep(0.05)
                held.go.set()
                ended = [(await ending).status]
            return [*ended, (await jobs.wait(second)).status]

    assert asyncio.run(asyncio.wait_for(whole(), 60)) == ["cancelled", "answered"]


def test_a_job_that_is_resumed_as_soon_as_it_is_seen_to_be_cancelled_is_read(tmp_path, monkeypatch) -> None:
    async def whole() -> str:
        held = Held()
        async with running(tmp_path, held) as (jobs, begin):
            first = await begin()
            await asyncio.to_thread(held.reached.wait, 30)
            end = jobs.desk.store.end

            def slowly(*given, **named):
                found = end(*given, **named)
                time.sleep(0.2)  # it can be seen, and the job is not let go yet
                return found

            monkeypatch.setattr(jobs.desk.store, "end", slowly)
            ending = asyncio.create_task(jobs.cancel(first))
            await asyncio.sleep(0.05)
            held.go.set()
            while (found := jobs.desk.store.job(first.id, LOCAL)).status != "cancelled":
                await asyncio.sleep(0.01)
            again = await asyncio.gather(jobs.resume(found), jobs.resume(found), return_exceptions=True)
            assert any(isinstance(one, Job) for one in again)
            await ending
            return (await jobs.wait(found)).status

    assert asyncio.run(asyncio.wait_for(whole(), 60)) == "answered"


def test_what_cannot_be_ended_because_the_disk_is_full_is_not_deleted(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("memagent.server.jobs._NOTED", 0.2)
    monkeypatch.setattr("memagent.server.jobs._AGAIN", 0.02)
    with under_way(tmp_path) as (client, id, go), monkeypatch.context() as patched:
        patched.setattr(Store, "end", full)
        go()
        refused = client.delete(f"/v1/readings/{id}")
        assert (refused.status_code, "cannot be ended now" in refused.text) == (507, True)
        patched.undo()
        assert ended(client, id)["status"] in ("answered", "cancelled")
        assert client.delete(f"/v1/readings/{id}").status_code == 204


def test_what_is_old_and_resumed_is_not_deleted(tmp_path, monkeypatch) -> None:
    async def whole() -> list[bool]:
        held = Held()
        async with running(tmp_path, held) as (jobs, begin):
            first = await begin()
            await asyncio.to_thread(held.reached.wait, 30)
            monkeypatch.setattr(jobs, "limits", Limits(keep_days=0.0))
            monkeypatch.setattr(jobs.desk.store, "ended_before", lambda _: [first])  # as it was a moment ago
            sweeping = asyncio.create_task(jobs._sweep())
            await asyncio.sleep(0.2)
            there = jobs.desk.store.job(first.id, LOCAL) is not None
            sweeping.cancel()
            held.go.set()
            return [there, (await jobs.wait(first)).status == "answered"]

    assert asyncio.run(asyncio.wait_for(whole(), 60)) == [True, True]


def test_a_request_that_ends_while_its_job_is_noted_leaves_none(tmp_path, monkeypatch) -> None:
    async def whole() -> int:
        async with running(tmp_path, script) as (jobs, begin):
            add = jobs.desk.store.add

            def slowly(job):
                time.sleep(0.2)
                add(job)

            monkeypatch.setattr(jobs.desk.store, "add", slowly)
            asking = asyncio.create_task(begin())
            await asyncio.sleep(0.1)
            asking.cancel()
            await asyncio.wait([asking])
            assert asking.cancelled()
            return len(jobs.desk.store.jobs(LOCAL, 10))

    assert asyncio.run(asyncio.wait_for(whole(), 60)) == 0
