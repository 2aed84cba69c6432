"""What clients send that a service has no use for, or that others than OpenAI's client send: taken, or refused by name."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from dataclasses import replace

import openai
import pytest

from memagent.core import Completion
from memagent.errors import ConfigError
from memagent.models.open import open_model
from memagent.server.keys import add_key
from memagent.server.run import Place, readers_for
from memagent.server.values import Limits
from tests.server.service import ended, served
from tests.server.test_service import Held, model
from tests.test_follow_up import TEXT, script

ASKED = {"question": "the code?", "text": TEXT}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}
WORDS = {"type": "text", "text": f"{TEXT}\n\nthe code?"}


def said(*parts) -> dict:
    return {"messages": [{"role": "user", "content": list(parts)}]}


@pytest.mark.parametrize(
    ("route", "body", "message"),
    [
        ("chat/completions", said(IMAGE, WORDS), "messages.0.content.0.type: Input should be 'text', 'refusal' or 'file'"),
        ("chat/completions", {**said(WORDS), "tools": [{"type": "function"}]}, "tools is not supported"),
        ("chat/completions", {**said(WORDS), "reader": "kept"}, "there is no reader 'kept' here; there are auto, memory"),
        ("readings", {**ASKED, "options": {"reader": "kept"}}, "there is no reader 'kept' here; there are auto, memory"),
        ("readings", {**ASKED, "question": "  "}, "the question is empty"),
        ("readings", {**ASKED, "text": " \n"}, "the text is empty or blank"),
        ("readings", {**ASKED, "question": ""}, "question: String should have at least 1 character"),
    ],
)
def test_what_cannot_be_read_is_refused_at_once_and_nothing_of_it_is_kept(tmp_path, route, body, message) -> None:
    with served(model(), tmp_path) as client:
        refused = client.post(f"/v1/{route}", json=body)
        assert (refused.status_code, message in refused.json()["error"]["message"]) == (400, True), refused.text
        assert list((tmp_path / "files").iterdir()) == []
        assert client.get("/v1/readings").json() == {"readings": [], "has_more": False}


def test_nothing_where_openai_takes_nothing(tmp_path) -> None:
    with served(model(), tmp_path) as client:
        nothing = dict.fromkeys(("stream", "stream_options", "tools", "functions", "max_tokens", "response_format", "seed"))
        found = client.post("/v1/chat/completions", json={**said(WORDS), **nothing})
        assert (found.status_code, found.json()["choices"][0]["message"]["content"]) == (200, "4821973")
        assert found.json()["choices"][0]["finish_reason"] == "stop"


def test_an_answer_that_was_cut_says_so(tmp_path) -> None:
    def cut(turn):
        return Completion(text="4821973", finish="length") if turn.kind == "answer" else script(turn)

    with served(model(cut), tmp_path) as client:
        body = said(WORDS)
        found = client.post("/v1/chat/completions", json=body).json()
        assert found["choices"][0]["finish_reason"] == "length"
        streamed = client.post("/v1/chat/completions", json={**body, "stream": True}).text
        parts = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
        assert [part["choices"][0]["finish_reason"] for part in parts][-1] == "length"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
def test_json_that_is_not_called_json_is_told_so(tmp_path, kind: str) -> None:
    with served(model(), tmp_path) as client:
        found = client.post("/v1/readings", content=json.dumps(ASKED), headers={"content-type": kind})
        assert found.status_code == 400
        assert found.json()["error"]["message"] == (
            f"the body is taken as JSON only with the header Content-Type: application/json, not {kind!r}"
        )


def test_a_list_can_be_read_to_its_end(tmp_path) -> None:
    with served(model(), tmp_path) as client:
        ids = [client.post("/v1/readings", json=ASKED).json()["id"] for _ in range(5)]
        found, after = [], ""
        while True:
            page = client.get("/v1/readings", params={"limit": 2, "after": after}).json()
            found += [one["id"] for one in page["readings"]]
            if not page["has_more"]:
                break
            after = found[-1]
        assert found == ids[::-1]
        assert client.get("/v1/readings?after=reading-x").status_code == 404
        for limit in (0, -5, 1001, 10**20):
            refused = client.get(f"/v1/readings?limit={limit}")
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "limit")


def test_files_and_models_are_there_for_openais_client(tmp_path) -> None:
    with served(model(), tmp_path) as http:
        client = openai.OpenAI(base_url=f"{http.base_url}/v1", api_key="none")
        kept = [client.files.create(file=(f"{name}.txt", name.encode()), purpose="user_data").id for name in "abc"]
        assert [one.id for one in client.files.list(limit=2)] == kept[::-1], "the client asks for the second page itself"
        assert client.files.content(kept[1]).text == "b"
        assert http.get("/v1/files?after=file-x").status_code == 404
        assert client.models.retrieve("memagent:gated").id == "memagent:gated"
        with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'"):
            client.models.retrieve("gpt")


def test_readers_are_offered_that_the_model_and_its_profile_know_and_the_one_that_the_operator_chose(monkeypatch) -> None:
    with closing((opened := open_model("embedded")).engine):
        usual = readers_for(opened, "embedded", None, {})
        assert {"auto", "memory", "gated", "parallel", "search"} <= set(usual)
        assert not {"reread", "recall", "kept", "together"} & set(usual), "compact has no words for them"
        narrow = replace(opened, defaults=opened.defaults.model_copy(update={"readers": ["memory"]}))
        assert set(readers_for(narrow, "embedded", None, {})) == {"auto", "memory"}
        assert set(readers_for(narrow, "embedded", None, {"reader": "gated"})) == {"auto", "memory", "gated"}
        assert set(readers_for(narrow, "embedded", None, {"reader": "reread"})) == {"auto", "memory"}
        monkeypatch.setattr("memagent.server.run.find_spec", lambda _: None)
        left = readers_for(opened, "embedded", None, {})
        assert set(usual) - set(left) == {"search", "retrieve"}, "they need an extra that is not installed"


def test_a_reading_whose_document_was_deleted_says_so_when_it_is_asked(tmp_path) -> None:
    with served(model(), tmp_path) as client:
        file = client.post("/v1/files", files={"file": ("a.txt", TEXT.encode())}).json()["id"]
        id = client.post("/v1/readings", json={"question": "the code?", "documents": [file]}).json()["id"]
        assert ended(client, id)["status"] == "answered"
        assert client.delete(f"/v1/files/{file}").status_code == 200
        refused = client.post(f"/v1/readings/{id}/ask", json={"question": "who is the captain?"})
        assert (refused.status_code, "a document of this reading was deleted" in refused.text) == (400, True)


def test_a_request_that_is_sent_twice_is_read_once(tmp_path) -> None:
    keys = tmp_path / "keys.txt"
    ann, bob = ({"Authorization": f"Bearer {add_key(keys, name)}", "Idempotency-Key": "7"} for name in ("ann", "bob"))
    with served(model(), tmp_path / "data", keys=keys) as client:
        ids: list[str] = []

        def send() -> None:
            ids.append(client.post("/v1/readings", json=ASKED, headers=ann).json()["id"])

        threads = [threading.Thread(target=send) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        send()
        assert len(ids) == 7
        assert len(set(ids)) == 1
        assert ended(client, ids[0], headers=ann)["status"] == "answered"
        for changed in ({"question": "who?"}, {"text": f"{TEXT} More."}, {"options": {"seed": 3}}):
            other = client.post("/v1/readings", json={**ASKED, **changed}, headers=ann)
            assert (other.status_code, "Idempotency-Key" in other.text) == (409, True)
        assert client.post("/v1/readings", json=ASKED, headers=bob).json()["id"] not in ids
        assert len(list((tmp_path / "data" / "files").iterdir())) == 2
        assert client.delete(f"/v1/readings/{ids[0]}", headers=ann).status_code == 204
        assert client.post("/v1/readings", json=ASKED, headers=ann).json()["id"] not in ids


def test_an_idle_service_needs_no_queue(tmp_path) -> None:
    held = Held()
    with served(model(held), tmp_path, limits=Limits(readings=2, readings_per_key=1, queue=0)) as client:
        begun = client.post("/v1/readings", json=ASKED)
        assert begun.status_code == 202
        assert held.reached.wait(30)
        assert client.post("/v1/readings", json=ASKED).status_code == 429
        held.go.set()
        assert ended(client, begun.json()["id"])["status"] == "answered"


def test_what_the_service_says_of_itself_is_what_it_does(tmp_path) -> None:
    keys = tmp_path / "keys.txt"
    ann = {"Authorization": f"Bearer {add_key(keys, 'ann')}"}
    with served(model(), tmp_path / "data", keys=keys) as client:
        told = client.get("/openapi.json").json()
        assert told["security"] == [{"key": []}]
        answers = [one["responses"] for way in told["paths"].values() for one in way.values()]
        assert all("422" not in one and {"4XX", "5XX"} <= one.keys() for one in answers)
        assert not any("ValidationError" in name for name in told["components"]["schemas"])
        wrong = client.post("/v1/readings", json={"question": 5}, headers=ann)
        assert wrong.status_code == 400
        error = told["components"]["schemas"]["Error"]["properties"]["error"]
        assert wrong.json()["error"].keys() == error["properties"].keys()
        for path in ("/health", "/ready"):
            assert client.head(path).status_code == 200


def test_a_key_sees_its_own_tokens_and_the_operators_those_of_all(tmp_path) -> None:
    keys = tmp_path / "keys.txt"
    ann, bob, ops = ({"Authorization": f"Bearer {add_key(keys, name)}"} for name in ("ann", "bob", "ops"))
    with served(model(), tmp_path / "data", keys=keys, operator="ops") as client:
        id = client.post("/v1/readings", json=ASKED, headers=ann).json()["id"]
        assert ended(client, id, headers=ann)["status"] == "answered"
        seen = ['key="ann"' in client.get("/metrics", headers=key).text for key in (ann, bob, ops)]
        assert seen == [True, False, True]
        assert 'memagent_readings_total{status="answered"} 1.0' in client.get("/metrics", headers=bob).text
        assert client.get("/metrics").status_code == 401
    with pytest.raises(ConfigError, match="--operator carl: there is no key of that name"):
        Place(host="127.0.0.1", port=0, folder=tmp_path / "data", keys=keys, operator="carl").check()


def test_the_data_of_the_service_are_no_documents(tmp_path) -> None:
    for folder in (tmp_path, tmp_path / "in" / "it"):
        with pytest.raises(ConfigError, match="holds the data of the service"):
            Place(host="127.0.0.1", port=0, folder=folder, root=tmp_path).check()
    (tmp_path / "docs").mkdir()
    Place(host="127.0.0.1", port=0, folder=tmp_path / "data", root=tmp_path / "docs").check()


def test_a_service_with_which_no_reading_can_succeed_does_not_start(tmp_path) -> None:
    small = model()
    small.engine.window = 1000  # type: ignore[misc]
    broken = served(small, tmp_path, options={"chunk_tokens": 100_000})
    with pytest.raises(ConfigError, match="does not fit the window of 1000 tokens"):
        broken.__enter__()
