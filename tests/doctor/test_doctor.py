"""`memagent doctor` on real servers, and on servers that misbehave."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from memagent.cli import app
from memagent.models.gguf import write_gguf
from memagent.models.open import EMBEDDED
from tests.faults import Fault, FaultServer
from tests.servers import free_port, llama_server


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMAGENT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MEMAGENT_BASE_URL", raising=False)


def doctor(url: str, *options: Any, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["doctor", "--model", "m", "--base-url", url, *map(str, options)])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def found_at(url: str, *options: Any) -> dict[str, Any]:
    return json.loads(doctor(url, "--json", *options))


@pytest.mark.parametrize("guess", [0, 16])
def test_llama_cpp_is_measured_with_and_without_speculation(tmp_path, guess):
    gguf = write_gguf(EMBEDDED, tmp_path / "embedded.gguf")
    with llama_server(gguf, window=1024, slots=2, guess=guess) as server:
        found = found_at(server.url, "--profile", "compact", "--concurrency", 4)
    assert (found["kind"], found["window"], found["slots"], found["too_long"]) == ("llamacpp", 1024, 2, "refused")
    assert found["exact"]
    assert found["counted"] == found["reported"]
    assert found["repeats"] is not False
    assert min(found["request"], found["prefill"], found["reading"]["seconds"]) > 0
    assert found["reading"]["turns"] == 7, "six updates and the answer"
    assert [one["concurrency"] for one in found["levels"]][:3] == [1, 2, 4]
    drafted, accepted = found["reading"]["drafted"], found["reading"]["accepted"]
    assert (drafted > 0, 0 <= accepted <= drafted) == (guess > 0, True)
    assert not (guess and any("--spec-type" in one["do"] for one in found["advice"]))


def replies(messages: list[dict[str, str]]) -> str:
    return "the captain promised a gold coin"


def test_a_server_that_says_nothing_of_itself_is_told_what_to_pass():
    with FaultServer(replies, delay=0.01) as server:
        text = doctor(server.url, "--concurrency", 2)
    assert "not reported" in text
    assert "--window N" in text
    assert "--tokenizer FOLDER" in text
    assert "guesses      not shown" in text


def test_both_counts_of_a_prompt_are_written_alike():
    listing = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 8192}]}
    with FaultServer(replies, routes={"/v1/models": listing}) as server:
        text = doctor(server.url, "--concurrency", 1)
    assert re.search(r"\d,\d{3} tokens by us, \d,\d{3} by the server", text)


def test_prompts_that_are_cut_in_silence_are_noticed():
    listing = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 3000}]}
    with FaultServer(
        replies, faults=lambda number: Fault("shorten", tokens=1500), routes={"/v1/models": listing}
    ) as server:
        found = found_at(server.url, "--concurrency", 1, "--ignore-usage")
    assert found["too_long"] == "cut"
    assert "cuts prompts that are too long" in found["advice"][0]["why"]


def test_what_a_server_guessed_is_read_from_its_metrics():
    lines = [
        'vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} %d',
        'vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} %d',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 999',
    ]
    seen = iter([(1000.0, 900.0), (1400.0, 1000.0)])
    listing = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 8192}]}
    shown = "# TYPE vllm:spec_decode_num_draft_tokens_total counter\n" + "\n".join(lines)
    routes = {"/v1/models": listing, "/metrics": lambda body: shown % next(seen)}
    with FaultServer(replies, routes=routes) as server:
        found = found_at(server.url, "--concurrency", 1)
    assert (found["reading"]["drafted"], found["reading"]["accepted"]) == (400, 100)
    assert "400 tokens and 100 were right" in found["advice"][-1]["why"]


def test_what_cannot_be_measured_is_said():
    assert "no connection" in doctor(f"http://127.0.0.1:{free_port()}/v1", code=4)
    embedded = CliRunner().invoke(app, ["doctor"])
    assert embedded.exit_code == 2
    assert "only a served model" in embedded.stderr
    with FaultServer(replies) as server:
        few = CliRunner().invoke(app, ["doctor", "--model", "m", "--base-url", server.url, "--turns", "1"])
    assert few.exit_code == 2


def test_a_server_that_reports_no_usage_is_not_said_to_take_or_to_cut_anything():
    class Silent(FaultServer):
        def complete(self, body, *, fault):
            return {**super().complete(body, fault=fault), "usage": {"prompt_tokens": 0}}

    listing = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 3000}]}
    with Silent(replies, routes={"/v1/models": listing}) as server:
        found = found_at(server.url, "--concurrency", 1)
    assert (found["too_long"], found["reported"], found["prefill"]) == ("unknown", 0, None)
    assert found["prefix_cache"] is None


def test_a_model_that_thinks_first_is_given_room_for_it():
    class Thinking(FaultServer):
        def complete(self, body, *, fault):
            reply = super().complete(body, fault=fault)
            few.append(body["max_tokens"])
            return reply

    few: list[int] = []
    refused = Fault("status", status=400, body='{"error": {"message": "max_tokens must be at least 4"}}')
    with Thinking(replies, faults=[refused]) as server:
        assert found_at(server.url, "--concurrency", 1)["reading"]["turns"] > 0
    assert few[0] == 1, "which was refused"
    assert min(few[1:]) == 16


def test_more_turns_at_once_than_a_server_bears_end_the_levels_and_no_more():
    refused = Fault("status", status=400, body='{"error": {"message": "too many requests at once"}}')
    with FaultServer(replies, delay=0.3) as server:
        server._fault = lambda number: refused if server._under_way > 2 else None
        found = found_at(server.url, "--concurrency", 8)
    assert [one["concurrency"] for one in found["levels"]] == [1, 2]


def test_secrets_of_the_address_are_not_shown():
    with FaultServer(replies) as server:
        secret = server.url.replace("http://", "http://ann:hunter2secret@") + "?token=abcd1234"
        shown = doctor(secret, "--concurrency", 1) + doctor(secret, "--concurrency", 1, "--json")
    assert "hunter2secret" not in shown
    assert "abcd1234" not in shown


def test_metrics_that_say_nothing_of_guesses_leave_open_whether_there_are_any():
    listing = {"data": [{"id": "m", "owned_by": "sglang", "max_model_len": 8192}]}
    routes = {"/v1/models": listing, "/metrics": "sglang:num_running_reqs 0"}
    with FaultServer(replies, routes=routes) as server:
        found = found_at(server.url, "--concurrency", 1)
    assert found["reading"]["drafted"] is None
