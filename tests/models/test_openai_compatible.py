"""The engine against a server that misbehaves on schedule: every fault is met, counted and named."""

from __future__ import annotations

import asyncio
import base64
import email.utils
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memagent.core.types import Completion, Engine, Sampling, Turn
from memagent.errors import (
    ConfigError,
    ContextTooLongError,
    ModelError,
    ModelRefusedError,
    ModelReplyError,
    ModelUnavailableError,
)
from memagent.models.openai_compatible import OpenAIEngine
from memagent.models.retrying import Backoff
from memagent.models.tokenizers import ByteTokenizer, FileTokenizer
from tests.faults import Fault, FaultServer
from tests.models.tiny import write_tokenizer
from tests.servers import free_port

Connect = Callable[..., OpenAIEngine]
QUICK = Backoff(base=0.01, limit=0.02)


def turn(user: str = "one two three", *, number: int = 0, max_tokens: int = 20, draft: str = "", **sampling: Any) -> Turn:
    id, drawn = f"chunk-{number}", Sampling(**sampling)
    return Turn(kind="update", id=id, user=user, max_tokens=max_tokens, sampling=drawn, draft=draft)


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens engines that wait briefly between attempts, and closes them."""
    engines: list[OpenAIEngine] = []

    def open_engine(server: FaultServer | str, **options: Any) -> OpenAIEngine:
        url = server if isinstance(server, str) else server.url
        options = {"backoff": QUICK, "timeout": 5.0, "retries": 3, **options}
        engines.append(OpenAIEngine("scripted", url, **options))
        return engines[-1]

    yield open_engine
    for engine in engines:
        engine.close()


def only(results: list[Completion | Exception]) -> Completion:
    (result,) = results
    assert isinstance(result, Completion), result
    return result


def failure(results: list[Completion | Exception]) -> Exception:
    (result,) = results
    assert isinstance(result, Exception), result
    return result


class TestRequest:
    def test_only_standard_fields_are_sent(self, connect: Connect) -> None:
        with FaultServer() as server:
            engine = connect(server)
            engine.generate([turn(seed=7, temperature=0.5), turn()])
        sent = sorted(server.requests, key=len)
        message = [{"role": "user", "content": "one two three"}]
        common = {"model": "scripted", "messages": message, "max_tokens": 20, "top_p": 1.0}
        assert sent == [{**common, "temperature": 0.0}, {**common, "temperature": 0.5, "seed": 7}]

    def test_extra_body_is_added(self, connect: Connect) -> None:
        with FaultServer() as server:
            connect(server, extra_body={"top_k": 1}).generate([turn()])
        assert server.requests[0]["top_k"] == 1

    def test_max_completion_tokens_where_the_server_demands_it(self, connect: Connect) -> None:
        body = '{"error": {"message": "Unsupported parameter: use \'max_completion_tokens\' instead of \'max_tokens\'."}}'
        with FaultServer(faults=[Fault("status", status=400, body=body)]) as server:
            engine = connect(server)
            assert only(engine.generate([turn()])).text == "one two three"
            engine.generate([turn()])
        assert ["max_tokens" in request for request in server.requests] == [True, False, False]
        assert server.requests[2]["max_completion_tokens"] == 20

    def test_turns_that_were_under_way_when_the_server_refused_a_field_are_sent_again_without_it(
        self, connect: Connect
    ) -> None:
        limit = '{"error": {"message": "Unsupported parameter: use \'max_completion_tokens\' instead of \'max_tokens\'."}}'
        seed = '{"error": {"message": "Unsupported value: \'seed\' is not supported with this model."}}'
        faults = [Fault("status", status=400, body=body) for body in [limit] * 4 + [seed] * 4]
        with FaultServer(faults=faults, delay=0.05) as server:
            results = connect(server, retries=0).generate([turn(f"{name} two", seed=1) for name in "abcd"])
        assert [only([result]).text for result in results] == ["a two", "b two", "c two", "d two"]
        assert ["seed" in request for request in server.requests] == [True] * 8 + [False] * 4

    def test_fields_that_a_server_takes_may_be_named_where_it_refuses_another(self, connect: Connect) -> None:
        limit = '{"error": {"message": "Unsupported parameter: use \'max_completion_tokens\' instead of \'max_tokens\'."}}'
        seed = '{"error": {"message": "Unknown parameter: \'seed\'. Supported: model, messages, max_completion_tokens."}}'
        faults = [Fault("status", status=400, body=body) for body in (limit, seed)]
        with FaultServer(faults=[*faults, Fault("status", status=503)]) as server:
            assert only(connect(server, retries=1).generate([turn(seed=1)])).text == "one two three"
        assert ["seed" in request for request in server.requests] == [True, True, False, False]

    def test_what_is_refused_whatever_is_sent_fails(self, connect: Connect) -> None:
        body = '{"error": {"message": "Unsupported parameter: use \'max_completion_tokens\' instead of \'max_tokens\'."}}'
        faults = [Fault("status", status=400, body=body)] * 9
        with FaultServer(faults=faults) as server:
            assert isinstance(failure(connect(server).generate([turn()])), ModelRefusedError)
        assert len(server.requests) == 2

    def test_a_sampling_field_that_is_refused_is_left_out_with_a_warning(
        self, connect: Connect, caplog: pytest.LogCaptureFixture
    ) -> None:
        body = '{"detail": "Unexpected fields in the request: {\'seed\'}"}'
        with FaultServer(faults=[Fault("status", status=422, body=body)]) as server:
            assert only(connect(server).generate([turn(seed=1)])).text == "one two three"
        assert "seed" not in server.requests[1]
        assert "does not take seed" in caplog.text

    def test_the_old_memory_is_sent_as_a_prediction_if_asked_for(self, connect: Connect) -> None:
        with FaultServer() as server:
            connect(server, predict=True).generate([turn(draft="the old memory"), turn()])
            connect(server).generate([turn(draft="the old memory")])
        sent = [request.get("prediction") for request in server.requests]
        assert {"type": "content", "content": "the old memory"} in sent
        assert sent.count(None) == 2

    def test_a_prediction_that_is_refused_is_left_out(self, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
        body = '{"error": {"message": "Unrecognized request argument supplied: prediction"}}'
        with FaultServer(faults=[Fault("status", status=400, body=body)]) as server:
            engine = connect(server, predict=True)
            assert only(engine.generate([turn(draft="old")])).text == "one two three"
            engine.generate([turn(draft="old")])
        assert ["prediction" in request for request in server.requests] == [True, False, False]
        assert "does not take prediction: requests go without\n" in caplog.text


class TestReply:
    def test_completion(self, connect: Connect) -> None:
        with FaultServer() as server:
            result = only(connect(server).generate([turn("a b c d", max_tokens=2)]))
        assert (result.text, result.finish) == ("a b", "length")
        assert (result.prompt_tokens, result.completion_tokens) == (4, 2)
        assert result.seconds > 0

    def test_any_success_is_one(self, connect: Connect) -> None:
        body = json.dumps({"choices": [{"message": {"content": "created"}, "finish_reason": "stop"}]})
        with FaultServer(faults=[Fault("status", status=201, body=body)]) as server:
            assert only(connect(server).generate([turn()])).text == "created"

    def test_order_is_kept_and_failures_stay_in_place(self, connect: Connect) -> None:
        with FaultServer(context=40) as server:
            results = connect(server).generate([turn("first"), turn("w " * 30), turn("third")])
        assert [type(result) for result in results] == [Completion, ContextTooLongError, Completion]
        assert [result.text for result in results if isinstance(result, Completion)] == ["first", "third"]

    def test_nothing_to_generate(self, connect: Connect) -> None:
        assert connect("http://127.0.0.1:9/v1").generate([]) == []

    def test_thinking_and_over_long_text_are_handed_on_as_they_are(self, connect: Connect) -> None:
        with FaultServer(faults=[Fault("think"), Fault("over_long")]) as server:
            engine = connect(server)
            assert only(engine.generate([turn("x")])).text == "<think>the user wants x</think>\n\nx"
            assert only(engine.generate([turn("x", max_tokens=3)])).completion_tokens == 40


TRANSIENT = [
    *(Fault("status", status=status) for status in (408, 409, 429, 500, 502, 503, 504, 529)),
    Fault("reset"),
    Fault("drop"),
    Fault("malformed"),
    Fault("no_choices"),
    Fault("null"),
]


class TestRetries:
    @pytest.mark.parametrize("fault", TRANSIENT, ids=lambda fault: f"{fault.kind}-{fault.status}")
    def test_a_transient_fault_is_survived(self, connect: Connect, fault: Fault) -> None:
        with FaultServer(faults=[fault, fault]) as server:
            assert only(connect(server).generate([turn()])).text == "one two three"
        assert len(server.requests) == 3

    @pytest.mark.parametrize("fault", [Fault("stall"), Fault("drip", seconds=30)], ids=["stall", "drip"])
    def test_a_reply_that_does_not_end_in_time_is_asked_for_again(self, connect: Connect, fault: Fault) -> None:
        with FaultServer(faults=[fault]) as server:
            assert only(connect(server, timeout=0.3).generate([turn()])).text == "one two three"

    def test_a_slow_reply_within_the_time_is_one_request(self, connect: Connect) -> None:
        with FaultServer(faults=[Fault("drip", seconds=0.3)]) as server:
            assert only(connect(server).generate([turn()])).text == "one two three"
        assert len(server.requests) == 1

    def test_all_attempts_fail(self, connect: Connect) -> None:
        with FaultServer(faults=lambda _: Fault("status", status=503, body="overloaded")) as server:
            error = failure(connect(server).generate([turn()]))
        assert isinstance(error, ModelUnavailableError)
        assert len(server.requests) == 4
        assert server.url in str(error)
        assert "4 attempts" in str(error)
        assert "overloaded" in str(error)

    @pytest.mark.parametrize("kind", ["malformed", "no_choices", "null"])
    def test_garbled_replies_to_the_end(self, connect: Connect, kind: Any) -> None:
        with FaultServer(faults=lambda _: Fault(kind)) as server:
            error = failure(connect(server, retries=1).generate([turn()]))
        assert isinstance(error, ModelReplyError)
        assert len(server.requests) == 2

    @pytest.mark.parametrize("value", ["0", "0.3", "date"])
    def test_retry_after_is_honoured(self, connect: Connect, value: str) -> None:
        wanted = 1.0 if value == "date" else float(value)
        header = email.utils.formatdate(time.time() + 2, usegmt=True) if value == "date" else value
        fault = Fault("status", status=429, headers={"Retry-After": header})
        with FaultServer(faults=[fault]) as server:
            started = time.monotonic()
            only(connect(server, backoff=Backoff(base=9, limit=9)).generate([turn()]))
            assert wanted <= time.monotonic() - started < wanted + 2

    def test_retries_are_logged_and_nothing_secret_is(self, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, logger="memagent.models")
        with FaultServer(faults=[Fault("status", status=500, body="boom secret-key-1")]) as server:
            connect(server, api_key="secret-key-1").generate([turn()])
        assert "attempt 1 failed (HTTP 500: boom ***)" in caplog.text

    def test_waits_that_people_notice_are_warnings_but_not_all_of_them(
        self, connect: Connect, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        caplog.set_level(logging.INFO, logger="memagent.models")
        monkeypatch.setattr("memagent.models.openai_compatible._NOTICED", 0.02)
        faults = [Fault("status", status=500), *[Fault("status", status=429, headers={"Retry-After": "0.03"})] * 2]
        with FaultServer(faults=faults) as server:
            connect(server, backoff=Backoff(base=0.001, limit=0.001)).generate([turn()])
        assert [record.levelname for record in caplog.records if "attempt" in record.message] == ["INFO", "WARNING", "INFO"]

    def test_no_server_is_reported_soon(self, connect: Connect) -> None:
        engine = connect(f"http://127.0.0.1:{free_port()}/v1", retries=50)
        error = failure(engine.generate([turn()]))
        assert isinstance(error, ModelUnavailableError)
        assert "3 attempts" in str(error)
        assert "--base-url" in str(error)


class TestRefusals:
    @pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 422, 501])
    def test_refused_at_once_with_the_servers_words(self, connect: Connect, status: int) -> None:
        with FaultServer(faults=[Fault("status", status=status, body='{"detail": "not like this"}')]) as server:
            error = failure(connect(server).generate([turn()]))
        assert isinstance(error, ModelRefusedError)
        assert "not like this" in str(error)
        assert len(server.requests) == 1

    def test_unknown_model_lists_what_is_served(self, connect: Connect) -> None:
        fault = Fault("status", status=404, body='{"error": {"message": "The model does not exist."}}')
        with FaultServer(faults=[fault], models=["alpha", "beta"]) as server:
            error = failure(connect(server).generate([turn()]))
        assert "'scripted' is not served here; these are: alpha, beta" in str(error)

    def test_a_url_without_v1_gets_a_hint(self, connect: Connect) -> None:
        with FaultServer() as server:
            error = failure(connect(server.url.removesuffix("/v1")).generate([turn()]))
        assert isinstance(error, ModelRefusedError)
        assert "ends in /v1" in str(error)

    def test_context_too_long(self, connect: Connect) -> None:
        with FaultServer(context=10) as server:
            error = failure(connect(server).generate([turn()]))
        assert isinstance(error, ContextTooLongError)
        assert "23 tokens" in str(error)

    def test_a_prompt_cut_in_silence_is_too_long(self, connect: Connect, tmp_path: Path) -> None:
        write_tokenizer(tmp_path)
        tokenizer = FileTokenizer.load(tmp_path)
        with FaultServer(faults=lambda _: Fault("cut", tokens=40)) as server:
            exact = connect(server, tokenizer=tokenizer)
            assert tokenizer.count("#" * 100) == 100
            assert isinstance(failure(exact.generate([turn("#" * 100)])), ContextTooLongError)
            assert only(exact.generate([turn("#" * 40)])).prompt_tokens == 40
            # One token each for the server, several each in our count: nothing was cut.
            assert only(exact.generate([turn("<|end|>" * 38)])).prompt_tokens == 40
            guessing = connect(server)
            assert isinstance(failure(guessing.generate([turn("word " * 100)])), ContextTooLongError)
            assert only(guessing.generate([turn("word " * 45)])).prompt_tokens == 40

    def test_a_prompt_is_counted_whole_only_where_the_server_has_fewer_than_its_parts(
        self, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_tokenizer(tmp_path)
        tokenizer = FileTokenizer.load(tmp_path)
        counted: list[str] = []

        def fewest(text: str) -> int:
            counted.append(text)
            return len(text)

        monkeypatch.setattr(tokenizer, "fewest", fewest)
        with FaultServer(faults=lambda _: Fault("cut", tokens=40)) as server:
            engine = connect(server, tokenizer=tokenizer, usage="trust")
            assert only(engine.generate([replace(turn("#" * 40), tokens=41)])).prompt_tokens == 40
            assert counted == []
            assert isinstance(failure(engine.generate([replace(turn("#" * 100), tokens=100)])), ContextTooLongError)
            assert only(engine.generate([replace(turn("#" * 40), tokens=100)])).prompt_tokens == 40
            assert only(engine.generate([turn("#" * 40)])).prompt_tokens == 40
            assert len(counted) == 3

    @pytest.mark.parametrize("limit", [60, 150, 210])
    def test_a_count_that_stops_growing_is_a_cut(self, connect: Connect, limit: int) -> None:
        with FaultServer(faults=lambda _: Fault("shorten", tokens=limit)) as server:
            error = failure(connect(server).generate([turn("lexicographically " * 300)]))
        assert isinstance(error, ContextTooLongError)
        assert f"the server counted {limit} tokens" in str(error)
        assert "in its first half" in str(error)

    @pytest.mark.parametrize("kind", ["undercount", "uncached"])
    def test_a_server_that_counts_otherwise_is_not_suspected(self, connect: Connect, kind: Any) -> None:
        with FaultServer(faults=lambda _: Fault(kind)) as server:
            engine = connect(server)
            for number in range(3):
                text = "lexicographically " * 300 + "tail " * 50 * number
                assert only(engine.generate([turn(text, number=number)])).text
            assert len(server.requests) <= 5  # looked into once

    def test_whoever_knows_better_says_so(self, connect: Connect) -> None:
        with FaultServer(faults=lambda _: Fault("undercount")) as server:
            trusting = connect(server, usage="trust")
            assert isinstance(failure(trusting.generate([turn("lexicographically " * 300)])), ContextTooLongError)
        with FaultServer(faults=lambda _: Fault("shorten", tokens=60)) as server:
            ignoring = connect(server, usage="ignore")
            assert only(ignoring.generate([turn("lexicographically " * 300)])).prompt_tokens == 60
            assert len(server.requests) == 1
        with pytest.raises(ConfigError, match="usage is 'guess'; it must be one of check, trust, ignore"):
            connect("http://127.0.0.1:1/v1", usage="guess")


class TestSecrets:
    def test_key_sources_in_order(self, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("MEMAGENT_API_KEY", raising=False)
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        with FaultServer() as server:
            connect(server).generate([turn()])
            monkeypatch.setenv("OPENAI_API_KEY", "from-openai")
            connect(server).generate([turn()])
            monkeypatch.setenv("MEMAGENT_API_KEY", "from-memagent")
            connect(server).generate([turn()])
            connect(server, api_key="given").generate([turn()])
        sent = [headers["authorization"] for headers in server.headers]
        assert sent == [f"Bearer {key}" for key in ("none", "from-openai", "from-memagent", "given")]

    def test_a_login_in_the_url_is_sent_and_never_shown(self, connect: Connect) -> None:
        with FaultServer(faults=[Fault("status", status=403, body="no access for ann:pa/ss word or pa/ss word")]) as server:
            url = server.url.replace("://", "://ann:pa%2Fss%20word@")
            engine = connect(f"{url}?code=hush-hush", api_key="the-key-itself")
            error = failure(engine.generate([turn()]))
        login = base64.b64encode(b"ann:pa/ss word").decode()
        assert server.headers[0]["authorization"] == f"Basic {login}"
        assert engine.identity == f"openai:scripted@{server.url}"
        shown = f"{error} {error!r} {engine!r} {engine.identity} {vars(engine)['_endpoint']!r}"
        assert not [secret for secret in ("pa/ss", "pa%2Fss", "ann", login, "hush", "the-key") if secret in shown]
        assert error.__cause__ is None
        assert error.__context__ is None or "the-key" not in repr(error.__context__)

    def test_keys_in_a_servers_message_are_masked(self, connect: Connect) -> None:
        body = json.dumps({"error": {"message": "Incorrect API key: sk-abcdef123456. You sent Bearer other-key-9"}})
        with FaultServer(faults=[Fault("status", status=401, body=body)]) as server:
            error = failure(connect(server, api_key="other-key-9").generate([turn()]))
        assert "abcdef" not in str(error)
        assert "other-key" not in str(error)

    def test_the_address_of_the_chat_route_is_understood(self) -> None:
        assert OpenAIEngine("m", "http://h:1/v1/chat/completions/").identity == "openai:m@http://h:1/v1"

    @pytest.mark.parametrize("options", [{"concurrency": 0}, {"timeout": 0}, {"retries": -1}])
    def test_unusable_settings(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=next(iter(options))):
            OpenAIEngine("m", "http://h/v1", **options)

    @pytest.mark.parametrize("url", ["localhost:8000", "ftp://host/v1", "http://", "http://host:port/v1"])
    def test_an_unusable_url(self, url: str) -> None:
        with pytest.raises(ConfigError, match="base URL"):
            OpenAIEngine("m", url)


class TestConcurrency:
    def test_is_an_engine(self, connect: Connect) -> None:
        assert isinstance(connect("http://127.0.0.1:9/v1", window=5, overhead=3, tokenizer=ByteTokenizer()), Engine)

    def test_limit_holds_over_all_callers(self, connect: Connect) -> None:
        with FaultServer(delay=0.05) as server:
            engine = connect(server, concurrency=3)
            with ThreadPoolExecutor(4) as pool:
                results = list(pool.map(lambda _: engine.generate([turn()] * 4), range(4)))
        assert all(isinstance(result, Completion) for batch in results for result in batch)
        assert server.peak == 3

    def test_generate_inside_a_running_loop(self, connect: Connect) -> None:
        async def notebook_cell(engine: OpenAIEngine) -> list[Completion | Exception]:
            return engine.generate([turn()])

        with FaultServer() as server:
            assert only(asyncio.run(notebook_cell(connect(server)))).text == "one two three"

    def test_agenerate_on_one_loop_after_another(self, connect: Connect) -> None:
        async def many(engine: OpenAIEngine) -> list[Completion]:
            return list(await asyncio.gather(*(engine.agenerate(turn(f"n{n}")) for n in range(5))))

        with FaultServer() as server:
            engine = connect(server)
            for _ in range(2):
                assert [result.text for result in asyncio.run(many(engine))] == ["n0", "n1", "n2", "n3", "n4"]

    def test_cancelling_the_task_cancels_the_request(self, connect: Connect) -> None:
        async def give_up(engine: OpenAIEngine, server: FaultServer) -> None:
            task = asyncio.create_task(engine.agenerate(turn()))
            while not server.requests:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        with FaultServer(faults=[Fault("stall")]) as server:
            asyncio.run(give_up(connect(server), server))
            assert server.left.wait(2)

    def test_close_leaves_nothing_behind_and_ends_what_waits(self, connect: Connect) -> None:
        with FaultServer(faults=[Fault("stall")]) as server:
            before = threading.active_count()
            engine = connect(server)
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(engine.generate, [turn()])
                while not server.requests:
                    time.sleep(0.01)
                engine.close()
                assert "closed" in str(failure(waiting.result(timeout=2)))
            assert server.left.wait(2)
            engine.close()
            time.sleep(0.05)
            assert threading.active_count() <= before
            with pytest.raises(ModelError, match="closed"):
                engine.generate([turn()])
            with pytest.raises(ModelError, match="closed"):
                asyncio.run(engine.agenerate(turn()))

    def test_close_while_a_task_waits(self, connect: Connect) -> None:
        async def wait(engine: OpenAIEngine) -> None:
            await engine.agenerate(turn())

        with FaultServer(faults=[Fault("stall")]) as server:
            engine = connect(server)
            threading.Timer(0.2, engine.close).start()
            with pytest.raises(ModelError, match="closed"):
                asyncio.run(wait(engine))
