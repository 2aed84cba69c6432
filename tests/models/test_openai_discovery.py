"""What servers tell about themselves, in the shapes they are known to answer in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from memagent.errors import ModelUnavailableError
from memagent.models.discovery import discover
from memagent.models.endpoint import Endpoint
from memagent.models.openai_compatible import DEFAULT_OVERHEAD, OpenAIEngine
from memagent.models.server_tokenizer import ServerTokenizer
from memagent.models.side_channel import SideChannel
from memagent.models.tokenizers import ByteTokenizer
from memagent.models.transport import Line, UnreachableError
from tests.faults import FaultServer
from tests.servers import free_port


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as running:
        yield running


def channel(server: FaultServer) -> SideChannel:
    return SideChannel(Endpoint.parse(server.url, None))


def listing(owner: str, name: str = "m", **entry: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, "owned_by": owner, **entry}]}


def window(server: FaultServer, model: str = "m") -> int | None:
    facts = discover(channel(server), model)
    assert facts is not None
    return facts.window


class TestWindow:
    @pytest.mark.parametrize("owner", ["vllm", "sglang"])
    def test_max_model_len(self, server: FaultServer, owner: str) -> None:
        server.routes["/v1/models"] = listing(owner, max_model_len=8192)
        assert window(server) == 8192
        assert window(server, "another") is None

    def test_llama_cpp_context_of_one_slot(self, server: FaultServer) -> None:
        server.routes["/v1/models"] = listing("llamacpp", "file.gguf")
        server.routes["/props"] = {"default_generation_settings": {"n_ctx": 2048}, "total_slots": 4}
        assert window(server, "any name") == 2048

    @pytest.mark.parametrize(
        ("parameters", "loaded", "expected"),
        [
            ("", [], 4096),
            ("stop x\nnum_ctx 16384", [], 16384),
            ("", [("m:latest", 8192)], 8192),
            ("num_ctx 999999", [], 32768),
        ],
    )
    def test_ollama_is_what_a_request_gets(
        self, server: FaultServer, parameters: str, loaded: list[tuple[str, int]], expected: int
    ) -> None:
        server.routes["/v1/models"] = listing("library", "m:latest")
        server.routes["/api/show"] = {"parameters": parameters, "model_info": {"qwen3.context_length": 32768}}
        server.routes["/api/ps"] = {"models": [{"name": name, "context_length": size} for name, size in loaded]}
        assert window(server) == expected
        facts = discover(channel(server), "m")
        assert facts is not None
        assert "m" in facts.models

    def test_a_server_that_does_not_say(self, server: FaultServer) -> None:
        assert window(server, "scripted") is None

    @pytest.mark.parametrize("answer", [[], {"data": None}, {"data": ["m"]}, {"data": []}])
    def test_an_odd_list_is_no_fact(self, server: FaultServer, answer: Any) -> None:
        server.routes["/v1/models"] = answer
        assert discover(channel(server), "m") is None


class TestEngine:
    def test_what_is_given_is_not_asked(self) -> None:
        with OpenAIEngine("m", f"http://127.0.0.1:{free_port()}/v1", window=100, overhead=5) as engine:
            assert (engine.window, engine.overhead) == (100, 5)

    def test_without_a_server_nothing_is_known_yet(self, server: FaultServer) -> None:
        port = free_port()
        with OpenAIEngine("m", f"http://127.0.0.1:{port}/v1") as engine:
            assert engine.window is None
            assert not engine.tokenizer.exact
            assert engine.overhead == DEFAULT_OVERHEAD

    def test_a_name_that_is_not_listed_is_warned_about(self, server: FaultServer, caplog: pytest.LogCaptureFixture) -> None:
        with OpenAIEngine("m", server.url) as engine:
            assert engine.window is None
        assert "no model 'm', only: scripted" in caplog.text

    def test_nobody_there_is_an_error_unless_nothing_has_to_be_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def unreachable(*_: Any) -> Any:
            raise UnreachableError("a proxy says: Bearer sk-hidden")

        url = f"http://bob:secret@127.0.0.1:{free_port()}/v1"
        with (
            OpenAIEngine("m", url) as engine,
            pytest.raises(ModelUnavailableError, match=r"no connection .*running") as told,
        ):
            engine.check_reachable()
        assert "secret" not in str(told.value)
        monkeypatch.setattr(Line, "request", unreachable)
        plain = url.replace("bob:secret@", "")
        with OpenAIEngine("m", plain, api_key="sk-hidden") as engine, pytest.raises(ModelUnavailableError) as told:
            engine.check_reachable()
        assert "sk-hidden" not in str(told.value)
        assert "a proxy says" in str(told.value)
        monkeypatch.undo()
        with OpenAIEngine("m", url, window=100) as engine, pytest.raises(ModelUnavailableError):
            engine.check_reachable()
        with OpenAIEngine("m", url, window=100, tokenizer=ByteTokenizer()) as engine:
            engine.check_reachable()

    def test_a_server_is_reachable_whatever_it_says_and_once_it_is_there(self) -> None:
        port = free_port()
        with OpenAIEngine("m", f"http://127.0.0.1:{port}/v1") as engine:
            with pytest.raises(ModelUnavailableError):
                engine.check_reachable()
            with FaultServer(port=port) as server:
                listed, server.routes["/v1/models"] = server.routes["/v1/models"], []
                engine.check_reachable()  # it names no model, but it is there
                server.routes["/v1/models"] = listed
                engine.check_reachable()
            engine.check_reachable()  # it has said what there is to know

    def test_a_window_that_is_larger_than_the_server_says_is_warned_about_once(
        self, server: FaultServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.routes["/v1/models"] = listing("vllm", max_model_len=1024)
        for given in (1024, 512):
            with OpenAIEngine("m", server.url, window=given) as engine:
                engine.check_reachable()
        assert not caplog.text
        with OpenAIEngine("m", server.url, window=4096) as engine:
            engine.check_reachable()
            engine.check_reachable()
            assert engine.window == 4096
        assert caplog.text.count("has a window of 1,024 tokens, as it says, and 4,096 are given") == 1


def vllm_tokenize(body: dict[str, Any]) -> dict[str, Any]:
    if "messages" in body:
        return {"count": 11, "max_model_len": 100, "tokens": []}
    return {"count": len(body.get("prompt", "").split()), "tokens": [], "max_model_len": 100}


class TestServerTokenizer:
    def test_vllm_counts_and_places_as_many_ends(self, server: FaultServer) -> None:
        server.routes["/tokenize"] = vllm_tokenize
        with OpenAIEngine("m", server.url) as engine:
            tokenizer = engine.tokenizer
            assert isinstance(tokenizer, ServerTokenizer)
            assert tokenizer.exact
            text = "the quick brown fox jumps over the lazy dog"
            assert tokenizer.count(text) == 9
            ends = tokenizer.ends(text)
            assert len(ends) == 9
            assert list(ends) == sorted(ends)
            assert ends[-1] == len(text)
            assert (tokenizer.count(""), tokenizer.ends("")) == (0, [])
            assert engine.overhead == 10

    def test_no_such_route(self, server: FaultServer) -> None:
        assert ServerTokenizer.find(channel(server), "m") is None

    def test_counts_are_remembered(self, server: FaultServer) -> None:
        asked: list[dict[str, Any]] = []
        server.routes["/tokenize"] = lambda body: asked.append(body) or vllm_tokenize(body)
        tokenizer = ServerTokenizer.find(channel(server), "m")
        assert tokenizer is not None
        before = len(asked)
        assert [tokenizer.count("a b c") for _ in range(5)] == [3] * 5
        assert len(asked) == before + 1
