"""The service: readings over HTTP, asked by our own routes and by the client of OpenAI."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import re
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig
from typer.testing import CliRunner

import memagent
from memagent.cli import app
from memagent.driver import read
from memagent.errors import ConfigError
from memagent.journal import Journal
from memagent.models.local import LocalEngine
from memagent.models.open import OpenModel, open_model
from memagent.models.scripted import ScriptedModel
from memagent.server.app import _ready
from memagent.server.documents import Shelf
from memagent.server.jobs import RefusedError
from memagent.server.keys import LOCAL, Keys, add_key, remove_key
from memagent.server.queue import FairQueue
from memagent.server.run import Place, built
from memagent.server.state import text_part
from memagent.server.store import Store
from memagent.server.values import Job, Limits
from memagent.settings import make_plan, make_settings
from tests.helpers import StringText
from tests.models.tiny import SHAPE, make_tiny_causal
from tests.server.service import OPTIONS, ended, served
from tests.test_follow_up import TEXT, script
from tests.test_structured import FEE, RIGHT
from tests.test_structured import TEXT as CONTRACT
from tests.test_structured import script as contract_script


def model(reply=script) -> OpenModel:
    return OpenModel(engine=ScriptedModel(reply))


class Held:
    """A script whose turns wait until they are let go."""

    def __init__(self) -> None:
        self.go, self.reached = threading.Event(), threading.Event()

    def __call__(self, turn) -> str:
        self.reached.set()
        self.go.wait(30)
        return script(turn)


# Our own routes


def test_readings_by_a_folder_of_weights_share_its_batch_and_answer_as_they_do_alone(tmp_path) -> None:
    folder = make_tiny_causal(tmp_path / "llama", LlamaConfig(**SHAPE))
    opened = replace(open_model(str(folder)), engine=LocalEngine(folder, dtype="float32"))
    budgets = {"question_tokens": 30, "chunk_tokens": 60, "memory_tokens": 30, "answer_tokens": 20}
    options = {"profile": "compact", **budgets}
    texts = ["the house on the hill is blue. " * length for length in (30, 3, 12)]
    settings = make_settings(opened, model=str(folder), **options)
    alone = [read(make_plan(StringText(text), "Which house?", settings, opened), opened.engine) for text in texts]
    with served(opened, tmp_path / "service", options=options) as client:
        begun = [client.post("/v1/readings", json={"question": "Which house?", "text": text}).json() for text in texts]
        found = [ended(client, one["id"])["result"] for one in begun]
    assert [(one["answer"], one["memory"]) for one in found] == [(one.answer, one.memory) for one in alone]
    assert len({one["turns"] for one in found}) == 3


def test_a_text_is_read_and_asked_again(tmp_path) -> None:
    with served(model(), tmp_path) as client:
        begun = client.post("/v1/readings", json={"question": "the code?", "text": TEXT})
        assert begun.status_code == 202
        found = ended(client, begun.json()["id"])
        assert (found["status"], found["result"]["answer"], found["result"]["status"]) == (
            "answered",
            "4821973",
            "supported",
        )
        [quote] = found["result"]["quotes"]
        assert TEXT[quote["start_char_index"] : quote["end_char_index"]] == quote["cited_text"]
        assert quote["file"] == "text.txt"
        assert str(tmp_path) not in json.dumps(found)
        again = client.post(f"/v1/readings/{found['id']}/ask", json={"question": "who is the captain?"}).json()
        assert ended(client, again["id"])["result"]["answer"] == "Ann"
        third = client.post(f"/v1/readings/{again['id']}/ask", json={"question": "the code?"}).json()
        assert ended(client, third["id"])["result"]["answer"] == "4821973"
        listed = client.get("/v1/readings").json()["readings"]
        assert [one["id"] for one in listed] == [third["id"], again["id"], found["id"]], "newest first"
        assert [one["id"] for one in client.get("/v1/readings?limit=1").json()["readings"]] == [third["id"]]
        metrics = client.get("/metrics").text
        assert 'memagent_readings_total{status="answered"} 3.0' in metrics
        assert 'memagent_answers_total{status="supported"} 3.0' in metrics
        assert f'memagent_build_info{{version="{memagent.__version__}"}} 1.0' in metrics
        assert float(metrics.split("\nprocess_open_fds ")[1].split()[0]) > 0
        assert 'memagent_requests_total{code="202",route="/v1/readings/{id}/ask"} 2.0' in metrics
        assert client.delete(f"/v1/readings/{third['id']}").status_code == 204
        assert client.get(f"/v1/readings/{third['id']}").status_code == 404


def test_readings_with_a_model_in_process_are_generated_together(tmp_path) -> None:
    sizes: list[int] = []

    class Sized(ScriptedModel):
        def generate(self, turns):
            sizes.append(len(turns))
            return super().generate(turns)

    held = Held()
    with served(OpenModel(engine=Sized(held)), tmp_path, limits=Limits(readings=4)) as client:
        asked = {"question": "the code?", "text": TEXT}
        ids = [client.post("/v1/readings", json=asked).json()["id"] for _ in range(4)]
        assert held.reached.wait(30)
        while [client.get(f"/v1/readings/{id}").json()["status"] for id in ids] != ["running"] * 4:
            time.sleep(0.01)
        held.go.set()
        results = [ended(client, id)["result"] for id in ids]
    assert {result["answer"] for result in results} == {"4821973"}
    assert len({result["turns"] for result in results}) == 1
    assert max(sizes) >= 3, "the three that came while the first turn was generated are generated together"


def test_files_are_uploaded_read_and_deleted(tmp_path) -> None:
    with served(model(), tmp_path) as client:
        kept = client.post("/v1/files", files={"file": ("../../log <b>.md", TEXT.encode())}).json()
        assert (kept["filename"], kept["bytes"]) == ("log <b>.md", len(TEXT))
        later = client.post("/v1/files", files={"file": ("b.txt", b"later")}).json()
        assert [one["id"] for one in client.get("/v1/files").json()["data"]] == [later["id"], kept["id"]], "newest first"
        assert client.delete(f"/v1/files/{later['id']}").json()["deleted"]
        assert (tmp_path / "files").stat().st_mode & 0o77 == (tmp_path / "service.sqlite3").stat().st_mode & 0o77 == 0
        begun = client.post("/v1/readings", json={"question": "the code?", "documents": [kept["id"]]}).json()
        found = ended(client, begun["id"])["result"]
        assert found["quotes"][0]["place"].startswith("log <b>.md, line 31")
        assert client.delete(f"/v1/files/{kept['id']}").json()["deleted"]
        assert client.get(f"/v1/files/{kept['id']}").status_code == 404
        assert list((tmp_path / "files").iterdir()) == []


def test_the_limit_in_bytes_is_an_option_in_megabytes(tmp_path, monkeypatch) -> None:
    seen: list[Limits] = []
    monkeypatch.setattr("memagent.server.run.built", lambda *given: (None, seen.append(given[-1])))
    monkeypatch.setattr("memagent.server.run.serve", lambda *_: None)
    for options in ([], ["--stored-mb-per-key", "3"]):
        done = CliRunner().invoke(app, ["serve", "--folder", str(tmp_path), *options])
        assert done.exit_code == 0, done.output
    assert [limits.stored_bytes for limits in seen] == [10_240 << 20, 3 << 20]


def test_documents_of_a_key_have_a_limit_in_bytes_whatever_they_came_with(tmp_path) -> None:
    with served(model(), tmp_path, limits=Limits(stored_bytes=2 * len(TEXT))) as client:
        asked = {"question": "the code?", "text": TEXT}
        ids = [client.post("/v1/readings", json=asked).json()["id"] for _ in range(2)]
        full = client.post("/v1/readings", json=asked)
        assert (full.status_code, "and the limit is 0 MB" in full.json()["error"]["message"]) == (409, True)
        assert client.post("/v1/files", files={"file": ("a.txt", b"one")}).status_code == 409
        assert len(list((tmp_path / "files").iterdir())) == 2
        ended(client, ids[0])
        client.delete(f"/v1/readings/{ids[0]}")
        assert client.post("/v1/readings", json=asked).status_code == 202


def test_what_comes_with_a_request_goes_with_its_reading(tmp_path) -> None:
    with served(model(), tmp_path, limits=Limits(files_per_key=1)) as client:
        client.post("/v1/files", files={"file": ("a.txt", b"one")})
        full = client.post("/v1/files", files={"file": ("a.txt", b"two")})
        assert (full.status_code, "1 files, the limit" in full.json()["error"]["message"]) == (409, True)
        ids = [client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()["id"] for _ in range(3)]
        for id in ids:
            ended(client, id)
        assert len(client.get("/v1/files").json()["data"]) == 1
        assert len(list((tmp_path / "files").iterdir())) == 4
        for id in ids:
            client.delete(f"/v1/readings/{id}")
        assert len(list((tmp_path / "files").iterdir())) == 1


def test_what_is_deleted_is_in_no_file_of_the_service_any_more(tmp_path, monkeypatch) -> None:
    connect = sqlite3.connect

    def plain(*given, **options) -> sqlite3.Connection:
        """A connection as most builds of SQLite make it; some overwrite what is deleted of their own accord."""
        db = connect(*given, **options)
        db.execute("PRAGMA secure_delete=OFF")
        return db

    def found() -> set[bytes]:
        data = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        return {text for text in (b"Whose-question", b"Whose-file", b"Whose-name", b"4821973") if text in data}

    monkeypatch.setattr(sqlite3, "connect", plain)
    with served(model(), tmp_path) as client:
        kept = client.post("/v1/files", files={"file": ("Whose-name.txt", b"Whose-file")}).json()
        begun = client.post("/v1/readings", json={"question": "Whose-question is the code?", "text": TEXT}).json()
        assert ended(client, begun["id"])["result"]["answer"] == "4821973"
        assert found() == {b"Whose-question", b"Whose-file", b"Whose-name", b"4821973"}
        assert client.delete(f"/v1/readings/{begun['id']}").status_code == 204
        assert found() == {b"Whose-file", b"Whose-name"}
        assert client.delete(f"/v1/files/{kept['id']}").status_code == 200
        assert found() == set()


@pytest.mark.parametrize("broken", ["remove", "_erase", "drop"])
def test_a_deletion_that_is_cut_short_is_finished_by_the_next_one_or_the_next_start(broken, tmp_path, monkeypatch) -> None:
    def fails(*given, **options):
        raise OSError("no space left on device")

    with served(model(), tmp_path) as client:
        id = client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()["id"]
        ended(client, id)
        with monkeypatch.context() as patched:
            patched.setattr(Store, broken, fails)
            failed = client.delete(f"/v1/readings/{id}", headers={"Connection": "close"})
            assert failed.status_code == 500
        assert client.delete(f"/v1/readings/{id}").status_code == (404 if broken == "drop" else 204)
        assert client.get(f"/v1/readings/{id}").status_code == 404
        assert len(list((tmp_path / "files").iterdir())) == (1 if broken == "drop" else 0)
    with served(model(), tmp_path):
        assert list((tmp_path / "files").iterdir()) == []


def test_what_a_killed_service_left_of_uploads_goes_with_the_next_start(tmp_path) -> None:
    with served(model(), tmp_path) as client:
        kept = client.post("/v1/files", files={"file": ("a.txt", b"kept")}).json()["id"]
        id = client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()["id"]
        ended(client, id)
    with closing(Store(tmp_path)) as store:
        store.keep(LOCAL, "b.txt", io.BytesIO(b"of a request that was never accepted"), part=True)
    files = tmp_path / "files"
    here = set(files.iterdir())
    (files / f"part-{'0' * 24}.txt.part").write_text("half of one")
    (files / f"file-{'1' * 24}.txt").write_text("without an entry")
    (files / "notes.txt").write_text("not ours")
    with served(model(), tmp_path) as client:
        assert client.get(f"/v1/files/{kept}").status_code == 200
        assert client.post(f"/v1/readings/{id}/ask", json={"question": "the code?"}).status_code < 500
    left = {path for path in files.iterdir() if path.name != "notes.txt"}
    assert (files / "notes.txt").exists()
    assert left < here
    assert len(left) == len(here) - 1


def test_a_reading_that_a_killed_service_had_begun_but_not_noted_goes_with_the_next_start(tmp_path) -> None:
    far = threading.Event()

    def slowly(turn) -> str:
        far.set()
        time.sleep(0.2)
        return script(turn)

    with served(model(slowly), tmp_path) as client:
        ids = [client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()["id"] for _ in range(2)]
        assert far.wait(30)
        while not all(client.get(f"/v1/readings/{id}").json().get("progress") for id in ids):
            time.sleep(0.01)
    with closing(Store(tmp_path)) as store:
        store.change(ids[0], reading=None)
    with served(model(), tmp_path) as client:
        assert [ended(client, id)["status"] for id in ids] == ["answered"] * 2
    with Journal.open(tmp_path / "journal.sqlite3") as journal:
        assert sorted(str(record.document["job"]) for record in journal.list(None)) == sorted(ids)


def test_a_reading_that_cannot_be_noted_is_not_left_in_the_journal(tmp_path, monkeypatch) -> None:
    change = Store.change

    def fails(self, id, **values):
        if "reading" in values:
            raise OSError("no space left on device")
        return change(self, id, **values)

    with served(model(), tmp_path) as client:
        monkeypatch.setattr(Store, "change", fails)
        id = client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()["id"]
        assert ended(client, id)["status"] == "failed"
    with Journal.open(tmp_path / "journal.sqlite3") as journal:
        assert journal.list(None) == ()


def test_only_the_user_of_the_service_can_read_its_folder(tmp_path) -> None:
    before = os.umask(0)
    try:
        with served(model(), tmp_path / "data" / "service") as client:
            client.post("/v1/files", files={"file": ("a.txt", b"one")})
            begun = client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()
            ended(client, begun["id"])
            modes = {path: (path.is_dir(), path.stat().st_mode & 0o777) for path in (tmp_path / "data").rglob("*")}
            assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)
    assert len([path for path in modes if path.parent.name == "files"]) == 2
    assert set(modes.values()) == {(True, 0o700), (False, 0o600)}


def test_of_an_upload_that_breaks_off_nothing_is_kept(tmp_path) -> None:
    class Broken(io.BytesIO):
        def read(self, *size: int) -> bytes:
            if self.tell():
                raise OSError("the connection is lost")
            return super().read(3)

    with closing(Store(tmp_path)) as store:
        with pytest.raises(OSError, match="is lost"):
            store.keep(LOCAL, "a.txt", Broken(b"a text"))
        assert (store.files(LOCAL), list((tmp_path / "files").iterdir())) == ([], [])


def test_of_a_request_that_is_refused_nothing_is_kept(tmp_path) -> None:
    file = {"type": "file", "file": {"file_data": "data:text/plain;base64,eA==", "filename": "a.txt"}}
    broken = {"type": "file", "file": {"file_data": "data:text/plain;base64,?"}}
    unknown = {"type": "file", "file": {"file_id": "file-x"}}
    said = {"type": "text", "text": "the code?"}
    refused = [
        (429, "readings", {"question": "the code?", "text": TEXT}),
        (429, "chat/completions", {"messages": [{"role": "user", "content": f"{TEXT}\n\nthe code?"}]}),
        (429, "chat/completions", {"messages": [{"role": "user", "content": [file, file, said]}]}),
        (400, "readings", {"question": "the code?", "text": TEXT, "options": {"reader": "none"}}),
        (400, "chat/completions", {"messages": [{"role": "user", "content": [file, broken, said]}]}),
        (400, "chat/completions", {"messages": [{"role": "user", "content": [file, unknown, said]}]}),
    ]
    held = Held()
    with served(model(held), tmp_path, limits=Limits(readings=1, queue=0)) as client:
        client.post("/v1/readings", json={"question": "the code?", "text": TEXT})
        assert held.reached.wait(30)
        there = sorted((tmp_path / "files").iterdir())
        for code, route, body in refused:
            assert client.post(f"/v1/{route}", json=body).status_code == code, body
            assert sorted((tmp_path / "files").iterdir()) == there
        held.go.set()


def test_readings_are_deleted_when_they_are_old(tmp_path) -> None:
    with served(model(), tmp_path) as client:
        id = client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()["id"]
        ended(client, id)
    with served(model(), tmp_path, limits=Limits(keep_days=1)) as client:
        assert client.get(f"/v1/readings/{id}").status_code == 200
    with served(model(), tmp_path, limits=Limits(keep_days=0)) as client:
        while client.get(f"/v1/readings/{id}").status_code == 200:
            time.sleep(0.01)
        assert list((tmp_path / "files").iterdir()) == []


def test_an_old_reading_that_cannot_be_deleted_keeps_none_of_the_others(tmp_path, monkeypatch, caplog) -> None:
    with served(model(), tmp_path) as client:
        ids = [client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()["id"] for _ in range(3)]
        for id in ids:
            ended(client, id)
    remove = Store.remove

    def some(store, id) -> None:
        if id == ids[0]:
            raise OSError("the disk is full")
        remove(store, id)

    monkeypatch.setattr(Store, "remove", some)
    with served(model(), tmp_path, limits=Limits(keep_days=0)) as client:
        while any(client.get(f"/v1/readings/{id}").status_code == 200 for id in ids[1:]):
            time.sleep(0.01)
    assert f"the reading {ids[0]} cannot be deleted" in caplog.text
    assert "the disk is full" in caplog.text


def test_events_tell_every_turn_and_go_on_after_the_last_that_was_seen(tmp_path) -> None:
    with served(model(), tmp_path) as client:
        id = client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()["id"]
        seen = events(client, id)
        assert [kind for kind, _ in seen].count("end") == 1
        turns = [values["turn"] for kind, values in seen if kind == "turn"]
        assert turns == list(range(1, len(turns) + 1))
        assert any("4821973" in values.get("memory", "") for _, values in seen)
        rest = events(client, id, {"Last-Event-ID": str(turns[-3])})
        assert [values["turn"] for kind, values in rest if kind == "turn"] == turns[-2:]
        assert rest[-1][1]["result"]["answer"] == "4821973"


def events(client, id, headers=None):
    found = []
    for block in client.get(f"/v1/readings/{id}/events", headers=headers or {}).text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


def test_of_a_reading_that_is_deleted_from_the_journal_only_the_end_is_told(tmp_path) -> None:
    with served(model(), tmp_path) as client:
        id = client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()["id"]
        ended(client, id)
        with Journal.open(tmp_path / "journal.sqlite3") as journal:
            [one] = journal.list()
            journal.delete(one.id)
        told = client.get(f"/v1/readings/{id}/events").text
    assert re.findall("^event: (.*)$", told, re.MULTILINE) == ["end"]


def test_a_reading_is_cancelled_while_it_waits_and_while_it_is_read(tmp_path) -> None:
    held = Held()
    with served(model(held), tmp_path, limits=Limits(readings=1)) as client:
        first, second = (client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json() for _ in range(2))
        assert held.reached.wait(30)
        assert client.post(f"/v1/readings/{second['id']}/cancel").json()["status"] == "cancelled"
        threading.Timer(0.2, held.go.set).start()
        assert client.post(f"/v1/readings/{first['id']}/cancel").json()["status"] == "cancelled"
        third = client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()
        assert ended(client, third["id"])["status"] == "answered"
        assert client.post(f"/v1/readings/{third['id']}/cancel").json()["status"] == "answered"
    with Journal.open(tmp_path / "journal.sqlite3") as journal:
        assert sorted((one.status, one.reason) for one in journal.list()) == [("answered", None), ("failed", "cancelled")]


def test_an_answer_that_follows_a_schema(tmp_path) -> None:
    replies = contract_script([json.dumps(RIGHT)] * 2)
    with served(model(replies), tmp_path) as client:
        asked = {"question": "the terms?", "text": CONTRACT, "options": {"schema": FEE, "chunk_tokens": 500}}
        found = ended(client, client.post("/v1/readings", json=asked).json()["id"])["result"]
        assert found["data"] == RIGHT
        kind = {"type": "json_schema", "json_schema": {"name": "terms", "schema": FEE}}
        messages = [{"role": "user", "content": CONTRACT}, {"role": "user", "content": "the terms?"}]
        made = client.post("/v1/chat/completions", json={"messages": messages, "response_format": kind}).json()
        assert json.loads(made["choices"][0]["message"]["content"]) == RIGHT


def test_a_reading_that_fails_says_why(tmp_path) -> None:
    import memagent

    broken = model(lambda turn: memagent.ModelUnavailableError("the model is gone"))
    with served(broken, tmp_path, limits=Limits(patience=0)) as client:
        id = client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()["id"]
        assert (ended(client, id)["status"], ended(client, id)["error"]) == ("failed", "the model is gone")
        kept = client.post("/v1/files", files={"file": ("a.pdf", b"%PDF-1.4 half")}).json()
        id = client.post("/v1/readings", json={"question": "the code?", "documents": [kept["id"]]}).json()["id"]
        assert "a.pdf: truncated PDF" in ended(client, id)["error"]
        counted = client.get("/metrics").text
        for line in ('readings_total{status="failed"} 2.0', 'failures_total{kind="model"} 1.0', "up 0.0"):
            assert f"memagent_{line}" in counted
        for code, file in ((400, {"file_id": kept["id"]}), (502, {"file_data": "data:text/plain;base64,eA=="})):
            parts = [{"type": "file", "file": file}, {"type": "text", "text": "the code?"}]
            refused = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": parts}]})
            assert refused.status_code == code, refused.text
        asked = client.post(f"/v1/readings/{id}/ask", json={"question": "x"})
        assert (asked.status_code, "is failed" in asked.json()["error"]["message"]) == (409, True)


def test_a_deadline_ends_a_reading(tmp_path) -> None:
    held = Held()
    with served(model(held), tmp_path, limits=Limits(deadline=0.3)) as client:
        id = client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()["id"]
        threading.Timer(1.0, held.go.set).start()
        assert ended(client, id)["error"] == "the deadline of 0 s has passed"


def test_paths_below_the_root_are_read_and_no_others(tmp_path) -> None:
    root, data = tmp_path / "root", tmp_path / "data"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "log.txt").write_text(TEXT)
    (tmp_path / "secret.txt").write_text("secret")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    with served(model(), data, root=root) as client:
        found = client.post("/v1/readings", json={"question": "the code?", "documents": ["sub/log.txt"]}).json()
        result = ended(client, found["id"])["result"]
        assert (result["answer"], result["quotes"][0]["file"]) == ("4821973", "sub/log.txt")
        (root / "file-1.txt").write_text(TEXT)
        named = client.post("/v1/readings", json={"question": "the code?", "documents": ["file-1.txt"]}).json()
        assert ended(client, named["id"])["result"]["quotes"][0]["file"] == "file-1.txt"
        outside = ["../secret.txt", "link.txt", "/etc/passwd", str(tmp_path / "secret.txt"), "sub/../../secret.txt"]
        for path in (*outside, "x" * 5000, "a\0b", "-", "~/x", "https://example.org/x", "no.txt"):
            refused = client.post("/v1/readings", json={"question": "q?", "documents": [path]})
            assert (refused.status_code, "secret\n" in refused.text) == (400, False)
            assert "below the root folder" in refused.json()["error"]["message"]


def test_links_in_a_folder_that_lead_out_of_the_root_are_not_followed(tmp_path) -> None:
    root, data = tmp_path / "root", tmp_path / "data"
    (root / "pub").mkdir(parents=True)
    (root / "good").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("The secret code is 4821973.")
    (root / "pub" / "a.txt").write_text(TEXT)
    (root / "pub" / "link.txt").symlink_to(tmp_path / "outside" / "secret.txt")
    (root / "good" / "a.txt").write_text(TEXT)
    (root / "good" / "inside.txt").symlink_to(root / "pub" / "a.txt")
    (root / "good" / "folder").symlink_to(tmp_path / "outside")
    with served(model(), data, root=root) as client:
        for path in ("pub", ".", "./pub/", "good/../pub"):
            refused = client.post("/v1/readings", json={"question": "q?", "documents": [path]})
            assert (refused.status_code, "secret" in refused.text, str(tmp_path) in refused.text) == (400, False, False)
            assert "leads out of the root folder" in refused.json()["error"]["message"]
        for path in ("", "  "):
            refused = client.post("/v1/readings", json={"question": "q?", "documents": [path]})
            assert (refused.status_code, "no path" in refused.json()["error"]["message"]) == (400, True)
        found = client.post("/v1/readings", json={"question": "the code?", "documents": ["good"]}).json()
        document = ended(client, found["id"])["result"]["document"]
        assert [one["name"] for one in document["files"]] == ["good/a.txt", "good/inside.txt"]
        assert [one["path"] for one in document["skipped"]] == ["good/folder"]


def test_a_link_that_comes_after_a_reading_was_taken_is_not_followed(tmp_path) -> None:
    (tmp_path / "root" / "pub").mkdir(parents=True)
    (tmp_path / "root" / "pub" / "a.txt").write_text(TEXT)
    (tmp_path / "secret.txt").write_text("secret")
    shelf = Shelf(Store(tmp_path), tmp_path / "root")
    shelf.check(["pub"], "ann")
    (tmp_path / "root" / "pub" / "link.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(ConfigError, match=r"a link that leads out of the root folder, link\.txt"):
        shelf.open(["pub"], "ann")


def test_documents_that_are_being_opened_keep_nobody_else_waiting(tmp_path, monkeypatch) -> None:
    go, opening = threading.Event(), threading.Semaphore(0)

    def slow(self, documents, owner):
        opening.release()
        go.wait(30)
        return opened(self, documents, owner)

    opened = Shelf.open
    monkeypatch.setattr(Shelf, "open", slow)
    with served(model(), tmp_path, limits=Limits(readings=12, readings_per_key=12)) as client:
        try:
            asked = [client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json() for _ in range(12)]
            assert all(opening.acquire(timeout=10) for _ in range(12))
            assert client.get("/ready", timeout=10).json() == {"status": "ready"}
        finally:
            go.set()
        assert {ended(client, one["id"])["status"] for one in asked} == {"answered"}


# Keys and limits


def test_a_name_may_have_two_keys_while_one_replaces_the_other(tmp_path, caplog) -> None:
    keys = tmp_path / "keys.txt"
    old = add_key(keys, "ann")
    line = keys.read_text()
    new = add_key(keys, "ann", replace=True)
    keys.write_text(line + keys.read_text())
    known = Keys(keys)
    assert [known.name_of(key) for key in (old, new, "mem-guess")] == ["ann", "ann", None]
    with caplog.at_level("INFO", logger="memagent.server"):
        bob = add_key(keys, "bob")
        remove_key(keys, "ann")
        assert [known.name_of(key) for key in (old, new, bob)] == [None, None, "bob"]
        keys.write_text("nonsense\n")
        assert known.name_of(bob) == "bob"
    assert [record.memagent_fields for record in caplog.records[:1]] == [{"count": 1, "added": "bob", "removed": "ann"}]
    assert "line 1: not a name and a SHA-256" in caplog.records[1].getMessage()


def test_keys_are_needed_and_keep_their_readings_apart(tmp_path) -> None:
    keys = tmp_path / "keys.txt"
    ann, bob = (add_key(keys, name) for name in ("ann", "bob"))
    assert ann not in keys.read_text()
    assert keys.stat().st_mode & 0o77 == 0
    with served(model(), tmp_path / "data", keys=keys) as client:
        hers, his = ({"Authorization": f"Bearer {key}"} for key in (ann, bob))
        asked = {"question": "the code?", "text": TEXT}
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {ann}"}, {"Authorization": ann}):
            assert client.post("/v1/readings", json=asked, headers=headers).status_code == 401
            assert client.get("/metrics", headers=headers).status_code == 401
        id = client.post("/v1/readings", json=asked, headers=hers).json()["id"]
        file = client.post("/v1/files", files={"file": ("a.txt", b"x")}, headers=hers).json()["id"]
        ended(client, id, headers=hers)
        for route in (f"/v1/readings/{id}", f"/v1/readings/{id}/events", f"/v1/files/{file}"):
            assert client.get(route, headers=his).status_code == 404
        assert client.post(f"/v1/readings/{id}/ask", json={"question": "x"}, headers=his).status_code == 404
        assert client.post(f"/v1/readings/{id}/cancel", headers=his).status_code == 404
        assert client.delete(f"/v1/readings/{id}", headers=his).status_code == 404
        stolen = client.post("/v1/readings", json={"question": "q?", "documents": [file]}, headers=his)
        assert (stolen.status_code, "upload it first" in stolen.text) == (400, True)
        assert client.get("/v1/readings", headers=his).json() == {"readings": [], "has_more": False}
        assert client.get("/health").status_code == client.get("/ready").status_code == 200


def test_a_service_that_others_can_reach_needs_keys(tmp_path) -> None:
    with pytest.raises(ConfigError, match="can be reached from other machines: give --keys"):
        Place(host="0.0.0.0", port=0, folder=tmp_path).check()
    with pytest.raises(ConfigError, match="is no folder"):
        Place(host="127.0.0.1", port=0, folder=tmp_path, root=tmp_path / "none").check()


def test_bad_key_files_are_refused(tmp_path) -> None:
    path = tmp_path / "keys.txt"
    for text, said in (("", "has no keys"), ("ann 12\n", "line 1: not a name"), (f"{LOCAL} {'0' * 64}\n", "line 1")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=said):
            Keys(path)
    with pytest.raises(ConfigError, match="cannot read the keys"):
        Keys(tmp_path / "none.txt")
    for name in ("", "a b", LOCAL, "x" * 65, "../x"):
        with pytest.raises(ConfigError, match="cannot be named"):
            add_key(tmp_path / "other.txt", name)
    path.unlink()
    old = add_key(path, "ann")
    with pytest.raises(ConfigError, match="has a key of 'ann' already: replace it with --replace"):
        add_key(path, "ann")
    new = add_key(path, "ann", replace=True)
    assert (Keys(path).name_of(old), Keys(path).name_of(new)) == (None, "ann")


def test_a_file_of_keys_keeps_its_comments_and_its_mode(tmp_path) -> None:
    path = tmp_path / "keys.txt"
    add_key(path, "ann")
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(f"# of the lab\n\n{path.read_text()}")
    path.chmod(0o644)
    add_key(path, "bob")
    remove_key(path, "ann")
    assert re.fullmatch(r"# of the lab\n\nbob [0-9a-f]{64}\n", path.read_text())
    assert path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(ConfigError, match="has no key of 'ann'"):
        remove_key(path, "ann")


def test_keys_are_those_that_the_file_has_now(tmp_path, caplog) -> None:
    path = tmp_path / "keys.txt"
    ann, keys = add_key(path, "ann"), Keys(path)
    bob = add_key(path, "bob")
    assert (keys.name_of(ann), keys.name_of(bob)) == ("ann", "bob")
    remove_key(path, "ann")
    assert (keys.name_of(ann), keys.name_of(bob)) == (None, "bob")
    kept = path.read_text()
    path.write_text("no key\n")
    assert keys.name_of(bob) == "bob", "a file that cannot be used changes nothing"
    assert "the keys stay as they were" in caplog.text
    path.unlink()
    assert keys.name_of(bob) == "bob"
    path.write_text(kept)
    remove_key(path, "bob")
    assert keys.name_of(bob) is None, "the last key can be taken away, too"


def test_without_keys_only_this_machine_and_no_other_site_is_heard(tmp_path) -> None:
    with served(model(), tmp_path) as client:
        assert client.get("/v1/models", headers={"Host": "evil.example"}).status_code == 403
        assert (
            client.post("/v1/files", files={"file": ("a", b"x")}, headers={"Origin": "https://evil.example"}).status_code
            == 403
        )
        own = str(client.base_url).rstrip("/")
        assert client.post("/v1/files", files={"file": ("a", b"x")}, headers={"Origin": own}).status_code == 200


def test_the_queue_refuses_what_is_too_much(tmp_path) -> None:
    held, limits = Held(), Limits(readings=1, queue=2)
    with served(model(held), tmp_path, limits=limits) as client:
        asked = {"question": "the code?", "text": TEXT}
        ids = [client.post("/v1/readings", json=asked).json()["id"]]
        assert held.reached.wait(30)
        ids += [client.post("/v1/readings", json=asked).json()["id"] for _ in range(2)]
        refused = client.post("/v1/readings", json=asked)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
        assert "2 readings are waiting" in refused.json()["error"]["message"]
        held.go.set()
        assert [ended(client, id)["status"] for id in ids] == ["answered"] * 3


def test_a_reading_that_is_resumed_waits_as_others_do_or_is_refused(tmp_path) -> None:
    held, limits = Held(), Limits(readings=1, queue=1)
    with served(model(held), tmp_path, limits=limits) as client:
        asked = {"question": "the code?", "text": TEXT}
        ids = [client.post("/v1/readings", json=asked).json()["id"] for _ in range(2)]
        assert held.reached.wait(30)
        assert client.post(f"/v1/readings/{ids[1]}/cancel").json()["status"] == "cancelled"
        third = client.post("/v1/readings", json=asked).json()["id"]
        refused = client.post(f"/v1/readings/{ids[1]}/resume")
        assert (refused.status_code, "1 readings are waiting" in refused.text) == (429, True)
        held.go.set()
        assert {ended(client, id)["status"] for id in (ids[0], third)} == {"answered"}
        assert client.post(f"/v1/readings/{ids[1]}/resume").status_code == 202
        assert ended(client, ids[1])["status"] == "answered"


def test_what_comes_together_is_not_more_than_the_limits(tmp_path) -> None:
    held, limits = Held(), Limits(readings=1, queue=2, files_per_key=3)
    with served(model(held), tmp_path, limits=limits) as client, ThreadPoolExecutor(12) as pool:
        asked = {"question": "the code?", "text": TEXT}
        codes = list(pool.map(lambda _: client.post("/v1/readings", json=asked).status_code, range(12)))
        assert sorted(codes) == [202] * 3 + [429] * 9
        files = list(pool.map(lambda n: client.post("/v1/files", files={"file": (f"{n}", b"x")}).status_code, range(12)))
        assert set(files) == {200, 409}
        assert len(client.get("/v1/files").json()["data"]) == files.count(200) <= 3
        held.go.set()


def test_a_reading_that_ended_since_it_was_looked_up_is_cancelled_and_deleted_as_it_is_now(tmp_path) -> None:
    async def late() -> tuple[str, str, bool]:
        with ExitStack() as stack:
            there = Place(host="127.0.0.1", port=0, folder=tmp_path)
            _, service = built(stack, there, model(), "scripted", None, {}, Limits())
            await service.jobs.start()
            job = await service.begin(Job(owner=LOCAL, question="the code?"), [text_part(TEXT)])
            before = service.job(job.id, LOCAL)
            await service.jobs.wait(job)
            cancelled = await service.jobs.cancel(before)
            await service.delete(before)
            gone = service.store.job(job.id, LOCAL) is None
            await service.jobs.close()
            return before.status, cancelled.status, gone

    status, cancelled, gone = asyncio.run(late())
    assert (status in ("queued", "running"), cancelled, gone) == (True, "answered", True)


def test_a_key_cannot_fill_the_queue_of_the_others(tmp_path) -> None:
    keys, held = tmp_path / "keys.txt", Held()
    ann, bob = ({"Authorization": f"Bearer {add_key(keys, name)}"} for name in ("ann", "bob"))
    limits = Limits(readings=1, queue=10, queue_per_key=1)
    with served(model(held), tmp_path / "data", keys=keys, limits=limits) as client:
        asked = {"question": "the code?", "text": TEXT}
        assert client.post("/v1/readings", json=asked, headers=ann).status_code == 202
        assert held.reached.wait(30)
        assert client.post("/v1/readings", json=asked, headers=ann).status_code == 202
        refused = client.post("/v1/readings", json=asked, headers=ann)
        assert (refused.status_code, "1 of your readings are waiting, the limit is 1" in refused.text) == (429, True)
        assert client.post("/v1/readings", json=asked, headers=bob).status_code == 202
        held.go.set()


def test_tokens_of_a_day_are_counted_and_limited(tmp_path) -> None:
    with served(model(), tmp_path, limits=Limits(tokens_per_day=100)) as client:
        asked = {"question": "the code?", "text": TEXT}
        first = ended(client, client.post("/v1/readings", json=asked).json()["id"])["result"]
        refused = client.post("/v1/readings", json=asked)
        assert refused.status_code == 429
        until_midnight = 86400 - time.time() % 86400
        assert abs(int(refused.headers["retry-after"]) - until_midnight) % 86400 < 60
        used = [first[name][kind] for name in ("usage", "verification") for kind in ("prompt_tokens", "completion_tokens")]
        assert f"{sum(used):,} tokens were spent today, the limit is 100" in refused.json()["error"]["message"]
        assert f'memagent_tokens_total{{key="local"}} {float(sum(used))}' in client.get("/metrics").text
    with served(model(), tmp_path, limits=Limits(tokens_per_day=100)) as client:  # also after a restart
        assert client.post("/v1/readings", json=asked).status_code == 429


def test_tokens_are_counted_once_if_a_service_ends_and_goes_on(tmp_path) -> None:
    turns, far, limits = 0, threading.Event(), Limits(tokens_per_day=1)

    def slowly(turn) -> str:
        nonlocal turns
        turns += 1
        if turns > 2:
            far.set()
            time.sleep(0.2)
        return script(turn)

    asked = {"question": "the code?", "text": TEXT}
    with served(model(slowly), tmp_path, limits=limits) as client:
        id = client.post("/v1/readings", json=asked).json()["id"]
        assert far.wait(30)
    with served(model(), tmp_path, limits=limits) as client:
        result = ended(client, id)["result"]
        assert result["turns_resumed"] > 0
        used = [result[name][kind] for name in ("usage", "verification") for kind in ("prompt_tokens", "completion_tokens")]
        said = client.post("/v1/readings", json=asked).json()["error"]["message"]
        assert f"{sum(used):,} tokens were spent today" in said


def test_bodies_are_bounded_as_they_come_in(tmp_path) -> None:
    with served(model(), tmp_path, limits=Limits(upload_bytes=10_000)) as client:
        for body in (b"x" * 20_000, (b"x" * 1000 for _ in range(20))):  # with its length, and in chunks without
            refused = client.post("/v1/readings", content=body, headers={"content-type": "application/json"})
            assert refused.status_code == 413
        assert client.post("/v1/files", files={"file": ("a.txt", b"x" * 20_000)}).status_code == 413
        assert list((tmp_path / "files").iterdir()) == []


HOSTILE = [
    ("POST", "/v1/readings", b"{", None),
    ("POST", "/v1/readings", b"[]", None),
    ("POST", "/v1/readings", b'{"question": 5, "text": "x"}', None),
    ("POST", "/v1/readings", b'{"question": "", "text": "x"}', None),
    ("POST", "/v1/readings", b'{"question": "q"}', None),
    ("POST", "/v1/readings", b'{"question": "q", "text": "x", "documents": ["y"]}', None),
    ("POST", "/v1/readings", b'{"question": "q", "text": "x", "more": 1}', None),
    ("POST", "/v1/readings", b'{"question": "q", "text": "x", "options": {"profile": "/etc/passwd"}}', None),
    ("POST", "/v1/readings", b'{"question": "q", "text": "x", "options": {"schema": "/etc/passwd"}}', None),
    ("POST", "/v1/readings", b'{"question": "q", "text": "x", "options": {"schema": {"$ref": "http://127.0.0.1/"}}}', None),
    ("POST", "/v1/readings", b'{"question": "q", "text": "x", "options": {"reader": "none"}}', None),
    ("POST", "/v1/readings", b'{"question": "q", "text": "x", "options": {"chunk_tokens": 1e99}}', None),
    ("POST", "/v1/readings", b'{"question": "q", "text": "\\ud800"}', None),
    ("POST", "/v1/readings", b'{"question": "q", "documents": ["\\ud800"]}', None),
    ("POST", "/v1/readings", b"[" * 100_000, None),
    ("POST", "/v1/readings", b"\xff\xfe", None),
    ("POST", "/v1/chat/completions", b'{"messages": []}', None),
    ("POST", "/v1/chat/completions", b'{"messages": [{"role": "user", "content": "x\\n\\n\\ud800"}]}', None),
    ("POST", "/v1/chat/completions", b'{"messages": [{"role": "assistant", "content": "x"}]}', None),
    ("POST", "/v1/chat/completions", b'{"messages": [{"role": "user", "content": "x"}], "n": 3}', None),
    ("POST", "/v1/chat/completions", b'{"model": "gpt-5", "messages": [{"role": "user", "content": "x"}]}', None),
    ("POST", "/v1/chat/completions", b'{"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]}', None),
    ("GET", "/v1/readings/..%2f..%2fetc%2fpasswd", None, None),
    ("GET", "/v1/readings/reading-x/events", None, {"Last-Event-ID": "9" * 5000}),
    ("GET", "/v1/readings?limit=x", None, None),
    ("DELETE", "/v1/files/file-x", None, None),
    ("PUT", "/v1/readings", b"x", None),
    ("GET", "/none", None, {"X-Odd": "a\tb"}),
    ("GET", "/v1/models", None, {"Host": "["}),
    ("GET", "/v1/models", None, {"Origin": "//["}),
    ("POST", "/login", b"key=x", {"Origin": "http://["}),
    ("POST", "/v1/readings", b'{"question": "q", "text": "x", "options": {"schema": {"properties": %s1%s}}}'
     % (b'{"a":' * 500, b"}" * 500), None),
]  # fmt: skip


def test_hostile_requests_are_refused_in_one_form(tmp_path) -> None:
    with served(model(), tmp_path) as client:
        for method, route, body, headers in HOSTILE:
            made = client.request(
                method, route, content=body, headers={"content-type": "application/json", **(headers or {})}
            )
            assert 400 <= made.status_code < 500, (route, body, made.text)
            assert set(made.json()["error"]) == {"message", "type", "param", "code"}
            assert "Traceback" not in made.text
            assert str(tmp_path) not in made.text
            assert made.headers["x-content-type-options"] == "nosniff"
        assert client.get("/v1/readings").json() == {"readings": [], "has_more": False}


def test_json_that_no_parser_of_python_should_see_is_refused_by_name(tmp_path) -> None:
    with served(model(), tmp_path) as client:
        for body, why in [("[" * 300, "recursion limit exceeded"), ('{"a": NaN}', "expected value"), ("{", "EOF")]:
            made = client.post("/v1/readings", content=body, headers={"content-type": "application/json"})
            assert made.status_code == 400
            assert f"not JSON that the service reads: {why}" in made.json()["error"]["message"]


async def _ends(service) -> None:
    await service.jobs.start()
    assert (await _ready(service)).status_code == 200
    await service.jobs.close()
    assert (await _ready(service)).status_code == 503
    with pytest.raises(RefusedError, match="shutting down"):
        await service.begin(Job(owner=LOCAL, question="the code?"), [text_part(TEXT)])


def test_a_service_that_ends_takes_nothing_more(tmp_path) -> None:
    with ExitStack() as stack:
        place = Place(host="127.0.0.1", port=0, folder=tmp_path)
        _, service = built(stack, place, model(), "scripted", None, {**OPTIONS}, Limits())
        asyncio.run(_ends(service))


def test_what_waited_and_what_was_under_way_is_unfinished_and_tokens_are_those_of_today(tmp_path, monkeypatch) -> None:
    store = Store(tmp_path)
    for number, status in enumerate(("queued", "running", "answered", "failed", "cancelled")):
        store.add(Job(id=status, owner=LOCAL, created=-number, question="q", status=status))
    assert [job.id for job in store.unfinished()] == ["running", "queued"], "oldest first"
    [first, second] = store.unfinished()
    assert [store.spend(job, total) for job, total in ((first, 5), (second, 7), (first, 9), (first, 9))] == [5, 7, 4, 0]
    assert store.spent(LOCAL) == 16
    monkeypatch.setattr("memagent.server.store._today", lambda: "2000-01-01")
    assert store.spent(LOCAL) == 0
    store.close()


# OpenAI's client


def test_the_client_of_openai_works_unchanged(tmp_path) -> None:
    with served(model(), tmp_path) as http:
        client = openai.OpenAI(base_url=f"{http.base_url}/v1", api_key="none", max_retries=0)
        assert {"memagent", "memagent:memory", "memagent:gated"} <= {one.id for one in client.models.list()}
        messages = [{"role": "user", "content": f"{TEXT}\n\nthe code?"}]
        made = client.chat.completions.create(model="memagent", messages=messages)
        assert (made.choices[0].message.content, made.choices[0].finish_reason) == ("4821973", "stop")
        assert made.usage.prompt_tokens > 1000
        assert made.model_extra["memagent"]["status"] == "supported"
        kept = client.files.create(file=("log.txt", TEXT.encode()), purpose="user_data")
        data = f"data:text/plain;base64,{base64.b64encode(TEXT.encode()).decode()}"
        for file in ({"file_id": kept.id}, {"file_data": data, "filename": "log.txt"}):
            parts = [{"type": "file", "file": file}, {"type": "text", "text": "the code?"}]
            made = client.chat.completions.create(model="memagent:gated", messages=[{"role": "user", "content": parts}])
            assert made.choices[0].message.content == "4821973"
            assert made.model_extra["memagent"]["quotes"][0]["file"] == "log.txt"
        with pytest.raises(openai.NotFoundError, match="there is no model 'gpt-4'"):
            client.chat.completions.create(model="gpt-4", messages=messages)


def test_a_stream_tells_progress_and_then_the_answer(tmp_path) -> None:
    with served(model(), tmp_path) as http:
        client = openai.OpenAI(base_url=f"{http.base_url}/v1", api_key="none", max_retries=0)
        messages = [{"role": "user", "content": f"{TEXT}\n\nthe code?"}]
        chunks = list(
            client.chat.completions.create(
                model="memagent", messages=messages, stream=True, stream_options={"include_usage": True}
            )
        )
        said = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
        thought = [one.choices[0].delta.model_extra.get("reasoning_content") for one in chunks if one.choices]
        assert said == "4821973"
        turns = re.findall(r"^turn (\d+).*: \w+.*, \w+$", "".join(filter(None, thought)), re.MULTILINE)
        [total] = [own["turns"] for one in chunks if (own := one.model_extra.get("memagent"))]
        assert turns == [str(number + 1) for number in range(total)], "none is missed"
        assert chunks[-1].usage.total_tokens > 1000
        assert len({one.id for one in chunks}) == 1


def test_a_stream_says_what_a_turn_did_and_of_how_many_it_is_one(tmp_path) -> None:
    held, first = Held(), iter([True])
    with served(model(lambda turn: script(turn) if next(first, False) else held(turn)), tmp_path) as client:
        body = {"messages": [{"role": "user", "content": f"{TEXT}\n\nthe code?"}], "stream": True}
        with client.stream("POST", "/v1/chat/completions", json=body) as stream:
            lines = stream.iter_lines()
            assert re.search(r"turn 1 of \d+: update of characters 0 to ", next(line for line in lines if "turn 1" in line))
            held.go.set()
            assert list(lines)[-2] == "data: [DONE]"


def test_a_stream_says_that_its_reading_was_deleted(tmp_path) -> None:
    held = Held()
    with served(model(held), tmp_path, limits=Limits(readings=1)) as client:
        client.post("/v1/readings", json={"question": "the code?", "text": TEXT})
        assert held.reached.wait(30)
        body = {"messages": [{"role": "user", "content": f"{TEXT}\n\nthe code?"}], "stream": True}
        with client.stream("POST", "/v1/chat/completions", json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            id = client.get("/v1/readings").json()["readings"][0]["id"]
            assert client.delete(f"/v1/readings/{id}").status_code == 204
            told = json.loads(next(line for line in lines if "error" in line).removeprefix("data: "))
        assert told["error"]["message"] in ("cancelled", f"the reading {id} was deleted")
        held.go.set()


def test_a_client_that_goes_away_cancels_its_reading(tmp_path) -> None:
    held = Held()
    with served(model(held), tmp_path) as client:
        body = {"messages": [{"role": "user", "content": f"{TEXT}\n\nthe code?"}], "stream": True}
        with client.stream("POST", "/v1/chat/completions", json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            assert held.reached.wait(30)
        threading.Timer(0.2, held.go.set).start()
        [one] = client.get("/v1/readings").json()["readings"]
        assert ended(client, one["id"])["status"] == "cancelled"


# The queue


def test_a_job_that_is_withdrawn_leaves_no_trace() -> None:
    queue = FairQueue(Limits())
    jobs = [Job(id=str(number), owner="ab"[number // 2], question="q") for number in range(3)]
    for job in jobs:
        queue.put(job)
    assert (queue.withdraw("0"), queue.withdraw("2"), queue.withdraw("2")) == (True, True, False)
    assert (len(queue), queue.take(), queue.take(), queue.running) == (1, jobs[1], None, 1)


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 5), st.integers(1, 3))
def test_keys_take_turns_and_no_limit_is_passed(owners, at_once, per_key) -> None:
    queue = FairQueue(Limits(readings=at_once, readings_per_key=per_key))
    for number, owner in enumerate(owners):
        queue.put(Job(id=str(number), owner=owner, created=0.0, question="q"))
    running, order = [], []
    while len(order) < len(owners):
        while (job := queue.take()) is not None:
            running.append(job)
            order.append(job)
            assert len(running) <= at_once
            assert [one.owner for one in running].count(job.owner) <= per_key
        queue.done(running.pop(0))
    assert sorted(int(job.id) for job in order) == list(range(len(owners)))
    for owner in "abc":
        own = [int(job.id) for job in order if job.owner == owner]
        assert own == sorted(own)
    if at_once == 1:  # a key waits no longer than for one job of each other key
        for place, job in enumerate(order[:-1]):
            later = [one.owner for one in order[place + 1 :]]
            if job.owner == order[place + 1].owner:
                assert set(later) == {job.owner}
