"""Responses, asked for by the client of OpenAI: at once, in the background, as streams, and over lost connections."""

from __future__ import annotations

import base64
import json
import re
import sqlite3
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from memagent import ModelUnavailableError
from memagent.conversation import asked_again
from memagent.core import Completion
from memagent.errors import ConfigError
from memagent.server.keys import add_key
from memagent.server.schemas import Message
from memagent.server.store import Store
from memagent.server.values import Job, Limits
from tests.faults import FaultServer
from tests.server.service import ServiceProcess, served
from tests.server.test_service import Held, model
from tests.test_follow_up import TEXT, script
from tests.test_follow_up import served as scripted
from tests.test_structured import RIGHT
from tests.test_structured import TEXT as CONTRACT
from tests.test_structured import script as contract_script

INPUT = f"{TEXT}\n\nthe code?"
EVENT: TypeAdapter = TypeAdapter(ResponseStreamEvent)


def client_of(http, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{str(http.base_url).rstrip('/')}/v1", api_key=key, max_retries=0)


@contextmanager
def serving(tmp_path: Path, reply=script, **options):
    """A client of OpenAI, and a plain one, of a service with this script."""
    with served(model(reply), tmp_path, **options) as http:
        yield client_of(http), http


def over(client: openai.OpenAI, id: str) -> Response:
    while (found := client.responses.retrieve(id)).status in ("queued", "in_progress"):
        time.sleep(0.02)
    return found


def checked(stream) -> list[dict]:
    """The events of a stream, each of which has the form that OpenAI documents, and the next number."""
    events = [event.to_dict() for event in stream]
    for event in events:
        EVENT.validate_python(event)
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return events


def kinds(events: list[dict]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


# One answer


def test_a_response_is_a_reading_under_another_name(tmp_path) -> None:
    with serving(tmp_path) as (client, http):
        made = client.responses.create(model="memagent", input=INPUT, metadata={"case": "7"}, instructions="Be brief.")
        Response.model_validate(made.to_dict())
        assert (made.status, made.output_text, made.metadata) == ("completed", "4821973", {"case": "7"})
        assert (made.instructions, made.background, made.model) == ("Be brief.", False, "memagent")
        own = made.model_extra["memagent"]
        reading = http.get(f"/v1/readings/{own['reading']}").json()
        assert (reading["question"], reading["result"]["answer"]) == ("Be brief.\nthe code?", "4821973")
        assert (own["status"], own["quotes"]) == ("supported", reading["result"]["quotes"])
        [thought, said] = made.output
        assert thought.summary[0].text.count("turn ") == own["turns"] == reading["result"]["turns"]
        [cited] = said.content[0].annotations
        assert (cited.type, cited.filename, cited.index) == ("file_citation", "text.txt", len("4821973"))
        assert client.responses.retrieve(made.id) == made
        client.responses.delete(made.id)
        assert http.get("/v1/readings").json() == {"readings": [], "has_more": False}
        assert list((tmp_path / "files").iterdir()) == []
        with pytest.raises(openai.NotFoundError, match=f"there is no response '{made.id}'"):
            client.responses.retrieve(made.id)


def test_a_reading_of_another_route_is_a_response_as_well(tmp_path) -> None:
    held = Held()
    with serving(tmp_path, held) as (client, http):
        id = http.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()["id"]
        assert held.reached.wait(30)
        found = client.responses.retrieve(id.replace("reading-", "resp_"))
        assert (found.status, found.output, found.usage, found.background) == ("in_progress", [], None, True)
        for other in (id, id.removeprefix("reading-")):
            with pytest.raises(openai.NotFoundError):
                client.responses.retrieve(other)
        held.go.set()
        found = over(client, found.id)
        assert (found.output_text, Response.model_validate(found.to_dict()).metadata) == ("4821973", {})


def test_usage_is_what_the_model_was_asked_and_all_but_the_answer_is_reasoning(tmp_path) -> None:
    def reply(turn) -> Completion:
        return Completion(text=script(turn), prompt_tokens=100, completion_tokens=10, cached_tokens=3)

    with serving(tmp_path, reply) as (client, _):
        made = client.responses.create(model="memagent", input=INPUT)
        calls = made.model_extra["memagent"]["turns"] + 1  # and verification
        used = made.usage
        assert (used.input_tokens, used.output_tokens, used.total_tokens) == (100 * calls, 10 * calls, 110 * calls)
        assert used.input_tokens_details.cached_tokens == 3 * calls
        assert used.output_tokens_details.reasoning_tokens == 10 * (calls - 1)


def test_messages_and_files_are_taken_as_in_a_chat(tmp_path) -> None:
    with serving(tmp_path) as (client, http):
        kept = client.files.create(file=("log.txt", TEXT.encode()), purpose="user_data")
        data = f"data:text/plain;base64,{base64.b64encode(TEXT.encode()).decode()}"
        said = {"type": "input_text", "text": "the code?"}
        for file in ({"file_id": kept.id}, {"file_data": data, "filename": "log.txt"}):
            content = [{"type": "input_file", **file}, said]
            made = client.responses.create(
                model="memagent:gated", input=[{"role": "user", "content": content}], instructions="Digits."
            )
            assert (made.output_text, made.model) == ("4821973", "memagent:gated")
            [cited] = made.output[1].content[0].annotations
            assert (cited.filename, cited.file_id == kept.id) == ("log.txt", "file_id" in file)
            [item] = client.responses.input_items.list(made.id)
            assert [part.type for part in item.content] == ["input_file", "input_text"]
            assert (item.content[0].filename, item.content[1].text) == ("log.txt", "Digits.\nthe code?")
        earlier = [one.to_dict() for one in made.output]  # as clients do that keep the conversation themselves
        made = client.responses.create(
            model="memagent", input=[{"role": "user", "content": TEXT}, *earlier, {"role": "user", "content": "the code?"}]
        )
        assert made.output_text == "4821973"
        asked = http.get(f"/v1/readings/{made.model_extra['memagent']['reading']}").json()
        assert (asked["question"], asked["result"]["document"]["characters"]) == ("the code?", len(f"{TEXT}\n\n4821973"))


def test_files_of_one_name_are_cited_by_that_name(tmp_path) -> None:
    with serving(tmp_path) as (client, _):
        ids = [client.files.create(file=("a.txt", text.encode()), purpose="user_data").id for text in (TEXT, "The end.")]
        parts = [*({"type": "input_file", "file_id": id} for id in ids), {"type": "input_text", "text": "the code?"}]
        made = client.responses.create(model="memagent", input=[{"role": "user", "content": parts}])
        assert {one.file_id for one in made.output[1].content[0].annotations} == {"a.txt"}


class Terms(BaseModel):
    customer: str
    fee: float
    begin: str | None


def test_an_answer_that_follows_a_schema_is_parsed(tmp_path) -> None:
    with serving(tmp_path, contract_script([json.dumps(RIGHT)] * 2)) as (client, _):
        made = client.responses.parse(model="memagent", input=f"{CONTRACT}\n\nthe terms?", text_format=Terms)
        assert made.output_parsed == Terms(**RIGHT)
        assert made.text.format.name == "Terms"
        again = client.responses.parse(
            model="memagent", input="the terms?", previous_response_id=made.id, text_format=Terms
        )
        assert again.output_parsed == made.output_parsed


def test_the_options_of_a_reading_are_taken_beside_those_of_openai(tmp_path) -> None:
    with serving(tmp_path) as (client, _):
        usual = client.responses.create(model="memagent", input=INPUT)
        own = {"chunk_tokens": 1000, "seed": 5}
        made = client.responses.create(model="memagent", input=INPUT, temperature=0.5, max_output_tokens=90, extra_body=own)
        assert made.model_extra["memagent"]["turns"] < usual.model_extra["memagent"]["turns"]
        assert (made.temperature, made.max_output_tokens) == (0.5, 90)
        chat = client.chat.completions.create(
            model="memagent", messages=[{"role": "user", "content": INPUT}], extra_body=own
        )
        assert chat.model_extra["memagent"]["turns"] == made.model_extra["memagent"]["turns"]
        with pytest.raises(openai.BadRequestError, match="chunk_tokens"):
            client.responses.create(model="memagent", input=INPUT, extra_body={"chunk_tokens": 0})


def test_an_answer_that_was_cut_is_incomplete(tmp_path) -> None:
    def cut(turn):
        return Completion(text="4821973", finish="length") if turn.kind == "answer" else script(turn)

    with serving(tmp_path, cut) as (client, _):
        made = client.responses.create(model="memagent", input=INPUT)
        assert (made.status, made.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert (made.output_text, made.output[1].status) == ("4821973", "incomplete")
        last = checked(client.responses.retrieve(made.id, stream=True))[-1]
        assert (last["type"], last["response"]["status"]) == ("response.incomplete", "incomplete")


def test_a_reading_that_fails_is_an_error_or_a_failed_response(tmp_path) -> None:
    gone = ModelUnavailableError("the model is gone")
    with serving(tmp_path, lambda turn: gone, limits=Limits(patience=0)) as (client, http):
        with pytest.raises(openai.InternalServerError, match="the model is gone") as raised:
            client.responses.create(model="memagent", input=INPUT)
        assert raised.value.status_code == 502
        with pytest.raises(openai.InternalServerError):
            client.with_options(max_retries=2).responses.create(model="memagent", input=INPUT)
        assert len(http.get("/v1/readings").json()["readings"]) == 2, "no document is read again by itself"
        found = over(client, client.responses.create(model="memagent", input=INPUT, background=True).id)
        assert (found.status, found.error.code, found.error.message) == ("failed", "server_error", "the model is gone")
        assert (found.output, found.completed_at) == ([], None)
        events = checked(client.responses.create(model="memagent", input=INPUT, stream=True))
        assert kinds(events)[-1] == "failed"
        assert events[-1]["response"]["error"]["message"] == "the model is gone"
        file = {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0x", "filename": "a.pdf"}
        parts = [file, {"type": "input_text", "text": "the code?"}]
        made = client.responses.create(model="memagent", input=[{"role": "user", "content": parts}], background=True)
        assert over(client, made.id).error.code == "invalid_prompt"


# In the background


def test_a_response_in_the_background_waits_is_read_and_can_be_cancelled(tmp_path) -> None:
    held = Held()
    with serving(tmp_path, held, limits=Limits(readings=1)) as (client, _):
        first, second = (client.responses.create(model="memagent", input=INPUT, background=True) for _ in range(2))
        assert (first.status, first.background, first.output) == ("queued", True, [])
        assert held.reached.wait(30)
        assert client.responses.retrieve(first.id).status == "in_progress"
        assert [client.responses.cancel(second.id).status for _ in range(2)] == ["cancelled"] * 2
        assert client.responses.retrieve(second.id).status == "cancelled"
        last = checked(client.responses.retrieve(second.id, stream=True))[-1]
        assert (last["type"], last["response"]["status"]) == ("response.failed", "cancelled")
        held.go.set()
        assert over(client, first.id).output_text == "4821973"
        assert client.responses.cancel(first.id).status == "completed"
        waited = client.responses.create(model="memagent", input=INPUT)
        with pytest.raises(openai.BadRequestError, match="only a response in the background can be cancelled"):
            client.responses.cancel(waited.id)


def test_only_in_the_background_a_reading_goes_on_without_its_client(tmp_path) -> None:
    for background in (True, False):
        held = Held()
        with serving(tmp_path / str(background), held) as (client, http):
            with client.responses.create(model="memagent", input=INPUT, background=background, stream=True) as stream:
                id = next(iter(stream)).response.id
                assert held.reached.wait(30)
            threading.Timer(0.3, held.go.set).start()
            assert over(client, id).status == ("completed" if background else "cancelled")
    held = Held()
    with serving(tmp_path / "waiting", held) as (client, http):
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=0.5).responses.create(model="memagent", input=INPUT)
        threading.Timer(2, held.go.set).start()
        [one] = http.get("/v1/readings").json()["readings"]
        assert over(client, one["id"].replace("reading-", "resp_")).status == "cancelled"


def test_what_is_not_stored_is_gone_once_it_was_answered(tmp_path) -> None:
    with serving(tmp_path) as (client, http):
        made = client.responses.create(model="memagent", input=INPUT, store=False)
        assert made.output_text == "4821973"
        events = checked(client.responses.create(model="memagent", input=INPUT, store=False, stream=True))
        assert events[-1]["response"]["output"][1]["content"][0]["text"] == "4821973"
        while http.get("/v1/readings").json()["readings"]:  # the stream ends a moment before
            time.sleep(0.01)
        assert list((tmp_path / "files").iterdir()) == []
        for id in (made.id, events[0]["response"]["id"]):
            with pytest.raises(openai.NotFoundError):
                client.responses.retrieve(id)
        with pytest.raises(openai.BadRequestError, match="background needs store"):
            client.responses.create(model="memagent", input=INPUT, store=False, background=True)


def test_what_is_not_stored_is_gone_with_its_client_and_with_the_service(tmp_path) -> None:
    held = Held()
    with serving(tmp_path, held) as (client, http):
        with client.responses.create(model="memagent", input=INPUT, store=False, stream=True) as stream:
            next(iter(stream))
            assert held.reached.wait(30)
        threading.Timer(0.3, held.go.set).start()
        while http.get("/v1/readings").json()["readings"]:
            time.sleep(0.01)
    store = Store(tmp_path)  # as it is after a crash
    store.add(Job(id="reading-1", owner="local", question="q", status="running", request={"store": False}))
    store.add(Job(id="reading-2", owner="local", question="q", documents=("file-x",), status="running"))
    store.close()
    with serving(tmp_path) as (_, http):
        assert [one["id"] for one in http.get("/v1/readings").json()["readings"]] == ["reading-2"]


# Another question


def test_another_question_is_asked_of_the_memory(tmp_path) -> None:
    with serving(tmp_path) as (client, _):
        first = client.responses.create(model="memagent", input=INPUT, metadata={"case": "7"})
        again = client.responses.create(
            model="memagent", input="who is the captain?", instructions="Be brief.", previous_response_id=first.id
        )
        assert (again.output_text, again.previous_response_id, again.metadata) == ("Ann", first.id, {})
        assert (again.instructions, again.background) == ("Be brief.", False)
        assert again.model_extra["memagent"]["turns"] == 1
        [item] = client.responses.input_items.list(again.id)
        assert [part.to_dict()["text"] for part in item.content] == ["Be brief.\nwho is the captain?"]
        third = client.responses.create(
            model="memagent", input="the code?", previous_response_id=again.id, background=True, stream=True
        )
        assert checked(third)[-1]["response"]["output"][1]["content"][0]["text"] == "4821973"
        client.responses.delete(first.id)
        assert client.responses.retrieve(again.id).output_text == "Ann"
        with pytest.raises(openai.NotFoundError, match="there is no response"):
            client.responses.create(model="memagent", input="the code?", previous_response_id=first.id)


def test_only_what_was_answered_can_be_asked_again(tmp_path) -> None:
    held = Held()
    with serving(tmp_path, held) as (client, _):
        first = client.responses.create(model="memagent", input=INPUT, background=True)
        assert held.reached.wait(30)
        with pytest.raises(openai.ConflictError, match="was answered has a memory to ask: this one is running"):
            client.responses.create(model="memagent", input="who?", previous_response_id=first.id)
        held.go.set()


@pytest.mark.parametrize(
    ("content", "said"),
    [([{"type": "file", "file": {"file_id": "file-1"}}], "without files"), ("", "no message with text")],
)
def test_another_question_needs_text_and_takes_no_files(content, said) -> None:
    with pytest.raises(ConfigError, match=said):
        asked_again([Message(role="user", content=content).said()])


# Streams


def test_a_stream_tells_each_turn_and_then_the_answer(tmp_path) -> None:
    with serving(tmp_path) as (client, _):
        events = checked(client.responses.create(model="memagent", input=INPUT, stream=True))
        turns = kinds(events).count("reasoning_summary_text.delta")
        assert kinds(events) == [
            *("created", "in_progress", "output_item.added", "reasoning_summary_part.added"),
            *["reasoning_summary_text.delta"] * turns,
            *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
            *("output_item.added", "content_part.added", "output_text.delta", "output_text.annotation.added"),
            *("output_text.done", "content_part.done", "output_item.done", "completed"),
        ]
        final = events[-1]["response"]
        assert final["memagent"]["turns"] == turns > 5
        told = "".join(event["delta"] for event in events if event["type"].endswith("summary_text.delta"))
        assert told == final["output"][0]["summary"][0]["text"]
        assert "turn 1: update of characters 0 to " in told
        assert client.responses.retrieve(final["id"]).to_dict() == final
        assert [events[0]["response"]["status"], events[1]["response"]["status"]] == ["queued", "in_progress"]
        for after in (-1, 0, 2, 3, 6, len(events) - 3, len(events) - 1, 10**6):
            rest = list(client.responses.retrieve(final["id"], stream=True, starting_after=after))
            assert [event.to_dict() for event in rest] == events[after + 1 :], after


def test_the_helper_of_the_client_accumulates_a_stream_and_goes_on_with_it(tmp_path) -> None:
    with serving(tmp_path, contract_script([json.dumps(RIGHT)])) as (client, _):
        asked = {"model": "memagent", "input": f"{CONTRACT}\n\nthe terms?", "background": True, "text_format": Terms}
        with client.responses.stream(**asked) as stream:
            seen = list(stream)
            made = stream.get_final_response()
        assert made.output_parsed == Terms(**RIGHT)
        with client.responses.stream(response_id=made.id, starting_after=5, text_format=Terms) as stream:
            assert [event.sequence_number for event in stream] == [event.sequence_number for event in seen[6:]]
            assert stream.get_final_response().output_parsed == made.output_parsed


def test_a_stream_shows_what_waits_and_ends_when_it_is_deleted(tmp_path) -> None:
    held = Held()
    with serving(tmp_path, held, limits=Limits(readings=1)) as (client, _):
        client.responses.create(model="memagent", input=INPUT, background=True)
        assert held.reached.wait(30)
        with client.responses.create(model="memagent", input=INPUT, background=True, stream=True) as stream:
            events = iter(stream)
            client.responses.delete(next(events).response.id)
            assert list(events) == []
        held.go.set()


def test_a_stream_over_two_crashes_is_that_of_a_service_that_was_never_killed(tmp_path) -> None:
    with FaultServer(scripted, delay=0.05) as server:
        sizes = ["--chunk-tokens", "100", "--memory-tokens", "50"]
        service = ServiceProcess(tmp_path / "home", ["--model", "scripted", "--base-url", server.url, *sizes])
        service.start()
        with service.client as http:
            client = client_of(http)
            stream, seen, id = client.responses.create(model="memagent", input=INPUT, background=True, stream=True), [], ""
            for count in (7, 3):
                seen += _until_killed(service, stream, count)
                service.start()
                id = seen[0]["response"]["id"]
                stream = client.responses.retrieve(id, stream=True, starting_after=seen[-1]["sequence_number"])
            seen += checked(stream)
            assert [event["sequence_number"] for event in seen] == list(range(len(seen)))
            assert seen == checked(client.responses.retrieve(id, stream=True))
            result = http.get(f"/v1/readings/{id.replace('resp_', 'reading-')}").json()["result"]
            assert result["turns_resumed"] > 0
            whole = checked(client.responses.create(model="memagent", input=INPUT, background=True, stream=True))
        assert _plain(seen) == _plain(whole)
        assert seen[-1]["type"] == "response.completed"
        assert service.stop() == 0


def _until_killed(service: ServiceProcess, stream, count: int) -> list[dict]:
    """What comes of a stream whose service is killed after so many events."""
    seen = []
    try:
        for event in stream:
            seen.append(event.to_dict())
            if len(seen) == count:
                service.kill()
    except openai.APIConnectionError:
        return seen
    raise AssertionError("the stream ended before the service was killed")


def _plain(events: list[dict]) -> str:
    """Without what differs between two responses to one request."""
    text = re.sub(r"[0-9a-f]{24}", "ID", json.dumps(events))
    return re.sub(r'"(created_at|completed_at)": \d+', r'"\1": 0', text)


def test_a_service_that_is_told_to_end_ends_its_streams_and_goes_on_later(tmp_path) -> None:
    with FaultServer(scripted, delay=0.05) as server:
        service = ServiceProcess(
            tmp_path / "home", ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100"]
        )
        service.start()
        with service.client as http:
            stream, seen = client_of(http).responses.create(model="memagent", input=INPUT, stream=True), []
            for event in stream:
                seen.append(event.to_dict())
                if len(seen) == 6:
                    service.process.terminate()
            assert kinds(seen)[-1] == "reasoning_summary_text.delta"
            assert service.process.wait(timeout=30) == 0
        service.start()
        with service.client as http:
            client, id = client_of(http), seen[0]["response"]["id"]
            rest = checked(client.responses.retrieve(id, stream=True, starting_after=seen[-1]["sequence_number"]))
            assert rest[0]["sequence_number"] == len(seen)
            assert rest[-1]["response"]["status"] == "completed"
        service.stop()


# Keys, limits, and requests that are refused


def test_responses_of_another_key_are_not_there(tmp_path) -> None:
    keys = tmp_path / "keys.txt"
    ann, bob = (add_key(keys, name) for name in ("ann", "bob"))
    with served(model(), tmp_path / "data", keys=keys) as http:
        hers, his = client_of(http, ann), client_of(http, bob)
        id = hers.responses.create(model="memagent", input=INPUT).id
        for look in (
            lambda: his.responses.retrieve(id),
            lambda: his.responses.retrieve(id, stream=True),
            lambda: his.responses.cancel(id),
            lambda: his.responses.delete(id),
            lambda: his.responses.input_items.list(id),
            lambda: his.responses.create(model="memagent", input="who?", previous_response_id=id),
        ):
            with pytest.raises(openai.NotFoundError, match="there is no response"):
                look()
        with pytest.raises(openai.AuthenticationError):
            client_of(http, "wrong").responses.retrieve(id)
        assert hers.responses.retrieve(id).output_text == "4821973"


def test_limits_hold_and_of_what_is_refused_nothing_is_kept(tmp_path) -> None:
    held = Held()
    with serving(tmp_path, held, limits=Limits(readings=1, queue=0)) as (client, _):
        client.responses.create(model="memagent", input=INPUT, background=True)
        assert held.reached.wait(30)
        there = sorted((tmp_path / "files").iterdir())
        with pytest.raises(openai.RateLimitError, match="0 readings are waiting") as raised:
            client.responses.create(model="memagent", input=INPUT, background=True)
        assert raised.value.response.headers["retry-after"] == "30"
        assert sorted((tmp_path / "files").iterdir()) == there
        held.go.set()
    with serving(tmp_path / "other", limits=Limits(tokens_per_day=10)) as (client, _):
        first = client.responses.create(model="memagent", input=INPUT)
        with pytest.raises(openai.RateLimitError, match="tokens were spent today"):
            client.responses.create(model="memagent", input="who?", previous_response_id=first.id)


SAID = {"type": "input_text", "text": "q?"}
REFUSED = [
    ({}, "input: Field required"),
    ({"input": []}, "input: "),
    ({"input": 5}, "input: "),
    ({"input": ""}, "there is no user message with text"),
    ({"input": "x\n\n\ud800"}, "hex escape"),
    ({"input": "x", "instructions": "\ud800"}, "hex escape"),
    ({"input": "x", "metadata": {"k": "\ud800"}}, "hex escape"),
    ({"input": "x", "metadata": {"\ud800": "v"}}, "hex escape"),
    ({"input": "x", "model": "\ud800"}, "hex escape"),
    ({"input": "x", "previous_response_id": "\ud800"}, "hex escape"),
    ({"input": [{"role": "user", "content": [SAID, {"type": "input_file", "file_id": "\ud800"}]}]}, "hex escape"),
    ({"input": [{"role": "user", "content": [SAID, {"type": "input_image", "image_url": "x"}]}]}, "'input_image' is not"),
    ({"input": [{"role": "user", "content": [SAID, {"type": "input_file", "file_url": "http:x"}]}]}, "no URL is fetched"),
    ({"input": [{"role": "user", "content": [SAID, {"type": "input_file"}]}]}, "needs a file_id, or file_data"),
    ({"input": [{"role": "user", "content": [SAID, {"type": "input_file", "file_id": "../x"}]}]}, "there is no file"),
    ({"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]}, "'function_call_output' is not"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role"),
    ({"input": "x", "model": "gpt-5"}, "there is no model 'gpt-5'"),
    ({"input": "x", "model": "memagent:none"}, "there is no model"),
    ({"input": "x", "tools": [{"type": "web_search"}]}, "tools is not supported"),
    ({"input": "x", "conversation": "conv_1"}, "conversation is not supported"),
    ({"input": "x", "prompt": {"id": "p"}}, "prompt is not supported"),
    ({"input": "x", "metadata": {"k": "v" * 513}}, "metadata.k: "),
    ({"input": "x", "metadata": {str(number): "" for number in range(17)}}, "metadata: "),
    ({"input": "x", "max_output_tokens": 0}, "max_output_tokens: "),
    ({"input": "x", "text": {"format": {"type": "json_schema", "schema": {"$ref": "http://127.0.0.1/"}}}}, ""),
    ({"input": "x", "reader": "none"}, "none"),
    ({"input": "x", "previous_response_id": "resp_x"}, "there is no response 'resp_x'"),
]  # fmt: skip


def test_what_cannot_be_done_is_refused_in_one_form(tmp_path) -> None:
    with served(model(), tmp_path) as http:
        for body, said in REFUSED:
            made = http.post("/v1/responses", content=json.dumps(body), headers={"content-type": "application/json"})
            assert made.status_code in (400, 404), (body, made.text)
            assert set(made.json()["error"]) == {"message", "type", "param", "code"}
            assert said in made.json()["error"]["message"], body
        for route in ("/v1/responses/resp_x", "/v1/responses/..%2fx", "/v1/responses/reading-x/input_items"):
            assert http.get(route).status_code == 404, route
        assert http.get("/v1/responses/resp_x?stream=true&starting_after=x").status_code == 400
        assert http.get("/v1/readings").json() == {"readings": [], "has_more": False}
        assert list((tmp_path / "files").iterdir()) == []


def test_what_a_reading_has_no_use_for_is_ignored(tmp_path) -> None:
    with serving(tmp_path) as (client, _):
        made = client.responses.create(
            model="memagent", input=INPUT, truncation="auto", reasoning={"effort": "low"}, include=[], tools=[],
            tool_choice="auto", parallel_tool_calls=True, user="ann", service_tier="auto", background=None, metadata=None,
        )  # fmt: skip
        assert made.output_text == "4821973"


def test_the_examples_of_the_guide_run(tmp_path, capsys) -> None:
    guide = (Path(__file__).parents[2] / "docs/guide/serving.md").read_text()
    blocks = [block for block in re.findall(r"```text\n(.*?)```", guide, re.DOTALL) if "client" in block]
    with served(model(), tmp_path) as http:
        code = "\n".join(blocks).replace("http://127.0.0.1:8600", str(http.base_url).rstrip("/"))
        exec(compile(code, "serving.md", "exec"), {"document": TEXT})
    said = capsys.readouterr().out.splitlines()
    assert len(blocks) == 2
    assert said[:2] == ["not in the document not_found", "response.in_progress"]
    assert said[-3:] == ["response.completed", "not in the document", "not in the document"]


def test_jobs_of_an_earlier_version_are_kept(tmp_path) -> None:
    store = Store(tmp_path)
    store.add(Job(id="reading-1", owner="local", question="q", status="answered"))
    store.close()
    with sqlite3.connect(tmp_path / "service.sqlite3") as db:
        db.execute("ALTER TABLE jobs DROP COLUMN request")
    db.close()
    store = Store(tmp_path)
    [job] = store.jobs("local", 10)
    assert (job.request, job.kept) == ({}, True)
    store.close()
