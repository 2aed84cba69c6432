"""What goes over the wire, and by which way."""

from __future__ import annotations

import gc
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import truststore

from memagent.core.types import Completion, Turn
from memagent.errors import ConfigError, ModelRefusedError, ModelReplyError, ModelUnavailableError
from memagent.models.endpoint import Endpoint
from memagent.models.openai_compatible import OpenAIEngine
from memagent.models.retrying import Backoff
from memagent.models.side_channel import SideChannel
from memagent.models.transport import DroppedError, Line, UnreachableError, _trusted
from tests.faults import Fault, FaultServer
from tests.server.web_service import until
from tests.servers import free_port

NAMES = [name for kind in ("http", "https", "all", "no") for name in (f"{kind}_proxy", f"{kind}_PROXY".upper())]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def asked(url: str, path: str, body: Any = None, key: str = "k") -> tuple[int, str]:
    class Owner:
        """Whoever has the line."""

    line = Line(owner := Owner(), Endpoint.parse(url, key), name="test", connections=1, connect_seconds=0.5)
    try:
        status, _, text = line.run(line.request(url + path, body))
        return status, text
    finally:
        del owner
        line.close()


def talk_nonsense(listener: socket.socket) -> None:
    """Answers a request with what is no HTTP."""
    connection, _ = listener.accept()
    connection.recv(65536)
    connection.sendall(b"garbage\r\n\r\n")
    connection.close()


def turn(user: str) -> Turn:
    return Turn(kind="update", id="chunk-0", user=user, max_tokens=20)


class TestRequest:
    def test_any_text_arrives_in_utf_8(self) -> None:
        with FaultServer() as server, OpenAIEngine("scripted", server.url) as engine:
            [result] = engine.generate([turn("Zoë 世界 🌊\x00\u2028")])
        assert isinstance(result, Completion), result
        assert server.requests[0]["messages"][0]["content"] == "Zoë 世界 🌊\x00\u2028"

    def test_half_a_surrogate_pair_is_sent_as_a_question_mark(self) -> None:
        with FaultServer() as server, OpenAIEngine("scripted", server.url) as engine:
            [result] = engine.generate([turn("a memory that ends in \ud83d")])
        assert isinstance(result, Completion), result
        assert server.requests[0]["messages"][0]["content"] == "a memory that ends in ?"

    def test_a_query_of_the_base_url_is_part_of_every_request(self) -> None:
        with FaultServer() as server, OpenAIEngine("scripted", f"{server.url}?version=2&key=a%20b") as engine:
            assert engine.facts.models == ("scripted",)
            engine.generate([turn("x")])
        assert server.paths == [f"/v1/{path}?version=2&key=a+b" for path in ("models", "chat/completions")]

    def test_nobody_there(self) -> None:
        with pytest.raises(UnreachableError):
            asked(f"http://127.0.0.1:{free_port()}/v1", "/models")
        with pytest.raises(UnreachableError):
            asked("http://host.invalid/v1", "/models")

    def test_a_reply_that_breaks_off(self) -> None:
        with FaultServer(faults=[Fault("reset")]) as server, pytest.raises(DroppedError):
            asked(server.url, "/chat/completions", {"model": "m", "messages": [], "max_tokens": 1})


class TestKey:
    @pytest.mark.parametrize("given", ["key-1", " key-1\n", "key-1\r\n"])
    def test_space_around_a_key_is_none_of_it(self, given: str) -> None:
        with FaultServer() as server, OpenAIEngine("scripted", server.url, api_key=given) as engine:
            engine.generate([turn("x")])
        assert server.headers[0]["authorization"] == "Bearer key-1"

    @pytest.mark.parametrize("given", ["key\nEvil: 1", "key\x00", "a\tb"])
    def test_a_key_that_no_header_can_hold(self, given: str) -> None:
        with pytest.raises(ConfigError, match="the API key has a line break or another control character") as raised:
            Endpoint.parse("http://h/v1", given)
        assert given not in str(raised.value)

    def test_whom_openai_bills(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
        monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
        with FaultServer() as server, OpenAIEngine("scripted", server.url) as engine:
            engine.generate([turn("x")])
        sent = server.headers[0]
        assert (sent["openai-organization"], sent["openai-project"]) == ("org-1", "proj-1")


class TestProxy:
    def test_requests_go_through_the_proxy_of_the_environment(self, environment: pytest.MonkeyPatch) -> None:
        with FaultServer() as proxy:
            environment.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1").replace("http://", "http://ann:secret@"))
            asked("http://model.invalid/v1", "/models")
            assert proxy.paths == ["http://model.invalid/v1/models"]
            environment.setenv("NO_PROXY", "model.invalid")
            with pytest.raises(UnreachableError):
                asked("http://model.invalid/v1", "/chat/completions", {})

    @pytest.mark.parametrize(
        ("variables", "url", "expected"),
        [
            ({}, "http://h/v1", None),
            ({"http_proxy": "http://p:1"}, "http://h/v1", "http://p:1"),
            ({"http_proxy": "http://p:1"}, "https://h/v1", None),
            ({"https_proxy": "p:1"}, "https://h/v1", "http://p:1"),
            ({"all_proxy": "http://p:1"}, "https://h/v1", "http://p:1"),
            ({"all_proxy": "http://p:1", "no_proxy": "other,h"}, "https://h:8/v1", None),
            ({"all_proxy": "http://p:1", "no_proxy": "localhost,::1"}, "http://[::1]:8000/v1", None),
        ],
    )
    def test_which_proxy(
        self, environment: pytest.MonkeyPatch, variables: dict[str, str], url: str, expected: str | None
    ) -> None:
        for name, value in variables.items():
            environment.setenv(name, value)
        assert Endpoint.parse(url, None).proxy == expected

    def test_its_login_is_a_secret(self, environment: pytest.MonkeyPatch) -> None:
        environment.setenv("HTTPS_PROXY", "http://ann:se%2Fcret@p:1")
        endpoint = Endpoint.parse("https://h/v1", None)
        assert "cret" not in repr(endpoint) + endpoint.redact("the proxy does not take se/cret")

    def test_a_proxy_that_is_not_http(self, environment: pytest.MonkeyPatch) -> None:
        environment.setenv("ALL_PROXY", "socks5://ann:secret@p:1")
        with pytest.raises(
            ConfigError, match="a socks5 proxy for h, and only HTTP proxies are supported: set NO_PROXY"
        ) as raised:
            OpenAIEngine("m", "https://h/v1")
        assert "secret" not in str(raised.value)


class TestSideChannel:
    def test_a_failure_is_no_answer(self) -> None:
        with FaultServer(routes={"/v1/text": "plain", "/v1/deep": "[" * 100_000}) as server:
            channel = SideChannel(Endpoint.parse(server.url, None), timeout=0.5)
            assert channel.ask(f"{server.url}/models") == {"data": [{"id": "scripted"}]}
            assert channel.text(f"{server.url}/text") == "plain"
            assert channel.ask(f"{server.url}/text") is None
            assert channel.ask(f"{server.url}/deep") is None
            assert channel.ask(f"{server.url}/nothing") is None
            assert channel.ask(f"http://127.0.0.1:{free_port()}/") is None
            channel.close()
            assert channel.ask(f"{server.url}/models") is None

    def test_a_server_that_does_not_answer_is_given_up(self) -> None:
        with FaultServer(delay=5.0, routes={"/v1/slow": lambda _: "late"}) as server:
            channel = SideChannel(Endpoint.parse(server.url, None), timeout=0.2)
            assert channel.text(f"{server.url}/chat/completions") is None
            channel.close()

    def test_the_wait_for_a_connection_is_not_the_servers(self) -> None:
        """As where several documents are cut at a server that counts one text at a time."""
        one = threading.Lock()

        def counted(_: object) -> dict[str, int]:
            with one:
                time.sleep(0.1)
                return {"count": 1}

        with FaultServer(routes={"/tokenize": counted}) as server, ThreadPoolExecutor(32) as pool:
            channel = SideChannel(Endpoint.parse(server.url, None), timeout=1.8)
            found = list(pool.map(lambda _: channel.ask(f"{channel.endpoint.root}/tokenize", {}), range(32)))
            channel.close()
        assert found == [{"count": 1}] * 32


class TestSecretsOfAddresses:
    """What aiohttp says of a failure has the whole URL in it, in percent-encoding."""

    @pytest.mark.parametrize("query", ["key=s3cr%20t%26val%2Bue%25x", "key=plain-secret"])
    def test_a_reply_that_is_no_http(self, query: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1?{query}"
            threading.Thread(target=talk_nonsense, args=[listener], daemon=True).start()
            with OpenAIEngine("m", url, retries=0) as engine:
                [failed] = engine.generate([turn("x")])
        assert isinstance(failed, ModelUnavailableError)
        assert not [part for part in ("s3cr", "val", "plain-secret") if part in str(failed)]

    def test_a_proxy_that_refuses(self, environment: pytest.MonkeyPatch) -> None:
        with FaultServer() as proxy:
            place = proxy.url.removesuffix("/v1").replace("http://", "http://ann:p%40ss%2Fword@")
            environment.setenv("HTTPS_PROXY", place)
            with OpenAIEngine("m", "https://model.invalid/v1", retries=0) as engine:
                [failed] = engine.generate([turn("x")])
        assert isinstance(failed, ModelUnavailableError)
        assert not [part for part in ("p%40ss", "p@ss", "word") if part in str(failed)]

    @pytest.mark.parametrize("proxy", ["http://ann:secret#word@p:1", "http://ann:secret/word@p:1", "http://[bad"])
    def test_a_proxy_that_is_no_url(self, environment: pytest.MonkeyPatch, proxy: str) -> None:
        environment.setenv("HTTPS_PROXY", proxy)
        with pytest.raises(ConfigError, match="a proxy for h that is not a URL") as raised:
            Endpoint.parse("https://h/v1", None)
        assert "secret" not in str(raised.value)


class TestWrongSettings:
    @pytest.mark.parametrize("host", ["a..b", "x" * 64])
    def test_a_host_that_is_none(self, host: str) -> None:
        with OpenAIEngine("m", f"http://{host}/v1", retries=0) as engine:
            [failed] = engine.generate([turn("x")])
            assert isinstance(failed, ModelUnavailableError)
            assert engine.facts.models == ()

    def test_an_account_that_no_header_can_hold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_ORG_ID", "org-1\n")
        assert Endpoint.parse("http://h/v1", "k").headers["OpenAI-Organization"] == "org-1"
        monkeypatch.setenv("OPENAI_PROJECT_ID", "a\nb")
        with pytest.raises(ConfigError, match="OPENAI_PROJECT_ID has a line break"):
            Endpoint.parse("http://h/v1", "k")

    def test_a_reply_that_is_too_deep(self) -> None:
        deep = "[" * 200_000
        faults = [Fault("status", status=200, body=deep), Fault("status", status=400, body=deep)]
        with FaultServer(faults=faults) as server, OpenAIEngine("scripted", server.url, retries=0) as engine:
            garbled, refused = (engine.generate([turn("x")])[0] for _ in faults)
        assert isinstance(garbled, ModelReplyError)
        assert isinstance(refused, ModelRefusedError)


class TestCertificates:
    def test_the_systems_store_where_openssl_finds_none(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        assert not isinstance(_trusted(), truststore.SSLContext)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
        assert isinstance(_trusted(), truststore.SSLContext)
        (tmp_path / "0a1b2c3d.0").write_text("")
        assert not isinstance(_trusted(), truststore.SSLContext)


class TestOtherProcess:
    PROGRAM = """
import os, sys
from memagent.core import Turn
from memagent.models.openai_compatible import OpenAIEngine

def ask(engine):
    return engine.generate([Turn(kind="update", id="chunk-1", user="x", max_tokens=5)])[0].text

engine = OpenAIEngine("scripted", sys.argv[1], concurrency=1)
turns = [Turn(kind="update", id=f"chunk-{n}", user="x", max_tokens=5) for n in range(3)]
assert [one.text for one in engine.generate(turns)] == ["x"] * 3 and engine.facts.models
child = os.fork()
if not child:
    if sys.argv[2] == "asks":
        assert [one.text for one in engine.generate(turns)] == ["x"] * 3
    elif sys.argv[2] == "closes":
        engine.close()
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert ask(engine) == "x"
sys.exit(os.waitstatus_to_exitcode(status))
"""

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
    @pytest.mark.parametrize("does", ["asks", "closes", "nothing"])
    def test_a_fork_of_it_ends_and_may_use_the_engine(self, does: str) -> None:
        with FaultServer() as server:
            command = [sys.executable, "-W", "ignore", "-c", self.PROGRAM, server.url, does]
            run = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (run.returncode, run.stderr) == (0, "")


class TestHeaders:
    def test_headers_of_a_reply_that_broke_off_are_told_to_nobody(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: session=cookie-secret\r\nContent-"

        def serve(listening: socket.socket) -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(answer)

        with socket.create_server(("127.0.0.1", 0)) as listening:
            threading.Thread(target=serve, args=[listening], daemon=True).start()
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
            with OpenAIEngine("m", url, window=100, retries=1, backoff=Backoff(base=0.001)) as engine:
                error = engine.generate([turn("x")])[0]
            listening.shutdown(socket.SHUT_RDWR)
        assert isinstance(error, ModelUnavailableError)
        assert "the server closed it before its reply was whole" in str(error)
        assert "cookie" not in f"{error}{caplog.text}".lower()

    @pytest.mark.parametrize("url", ["http://user:pass word@host/v1", "http://host/v1\tx", "http://user:pass\n@host/v1"])
    def test_an_address_with_a_space_or_a_control_character_is_refused_without_its_password(self, url: str) -> None:
        with pytest.raises(ConfigError, match="write %20 for a space") as error:
            OpenAIEngine("m", url)
        assert "pass" not in str(error.value)


class TestForgottenEngine:
    def test_it_leaves_no_thread_and_no_connection(self, capfd: pytest.CaptureFixture[str]) -> None:
        with FaultServer() as server:
            before = threading.active_count()
            engine = OpenAIEngine("scripted", server.url)
            engine.generate([turn("x")])
            assert engine.facts.models == ("scripted",)
            assert threading.active_count() > before
            del engine
            gc.collect()
            until(lambda: threading.active_count() <= before)
        assert capfd.readouterr().err == ""

    def test_a_program_that_forgets_to_close_one_ends_in_silence(self) -> None:
        program = """
import sys
from memagent.core import Turn
from memagent.models.openai_compatible import OpenAIEngine
engine = OpenAIEngine("scripted", sys.argv[1])
print(engine.generate([Turn(kind="update", id="chunk-1", user="x", max_tokens=5)])[0].text, engine.facts.models)
"""
        with FaultServer() as server:
            run = subprocess.run([sys.executable, "-c", program, server.url], capture_output=True, text=True, timeout=60)
        assert (run.returncode, run.stdout, run.stderr) == (0, "x ('scripted',)\n", "")
