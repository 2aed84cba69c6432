"""Traces of a real service, sent over OTLP to a receiver that reads them with the classes of OpenTelemetry."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memagent.server.keys import add_key
from tests.faults import FaultServer
from tests.server.service import ServiceProcess, ended
from tests.test_follow_up import TEXT, served

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SIZES = ["--chunk-tokens", "300", "--memory-tokens", "120", "--readings", "1"]


class Receiver(ThreadingHTTPServer):
    """What an OpenTelemetry collector is to a service."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def sent(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(body) for body in self.bodies]

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.sent
            for one in request.resource_spans
            for scope in one.scope_spans
            for span in scope.spans
        ]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.append(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
        self.server.paths.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield receiver
        receiver.shutdown()
        thread.join()


def values(span: Span) -> dict[str, Any]:
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in span.attributes}


def test_a_service_that_cannot_send_traces_says_so_when_it_starts(tmp_path) -> None:
    with FaultServer(served) as server:
        there = ["--model", "scripted", "--base-url", server.url, *SIZES]
        service = ServiceProcess(tmp_path / "home", there, OTEL_TRACES_EXPORTER="carrier-pigeon")
        service.start()
        assert service.log.count("there is no exporter for carrier-pigeon: install its package") == 1
        assert service.stop() == 0


def test_a_service_sends_its_readings_to_a_collector_below_the_span_of_their_request(tmp_path) -> None:
    keys = tmp_path / "keys.txt"
    headers = {"Authorization": f"Bearer {add_key(keys, 'ann')}"}
    with receiving() as receiver, FaultServer(served, delay=0.005) as server:
        there = ["--model", "scripted", "--base-url", server.url, "--keys", str(keys), *SIZES]
        service = ServiceProcess(
            tmp_path / "home", there, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, OTEL_EXPORTER_OTLP_COMPRESSION="gzip"
        )
        service.start()
        with service.client as client:
            asked = {"question": "the code?", "text": TEXT}
            traced = headers | {"traceparent": f"00-{TRACE}-{PARENT}-01"}
            # One at a time: the second waits for the first, and begins when that ends.
            begun = [
                client.post("/v1/readings", json=asked, headers=one).json()["id"] for one in (headers, traced, headers)
            ]
            found = [ended(client, id, headers=headers)["result"] for id in begun]
        assert service.stop() == 0
    assert set(receiver.paths) == {"/v1/traces"}
    resource = receiver.sent[0].resource_spans[0].resource
    assert {one.key: one.value.string_value for one in resource.attributes}["service.name"] == "memagent"
    readings = {
        values(span)["gen_ai.conversation.id"]: span for span in receiver.spans if span.name == "invoke_agent memagent"
    }
    assert set(readings) == {one["reading"] for one in found}
    first, second, third = (readings[one["reading"]] for one in found)
    assert (second.trace_id.hex(), second.parent_span_id.hex()) == (TRACE, PARENT)
    assert len({first.trace_id, second.trace_id, third.trace_id}) == 3
    assert (first.parent_span_id, third.parent_span_id) == (b"", b"")
    for one in found:
        reading = readings[one["reading"]]
        calls = [span for span in receiver.spans if span.parent_span_id == reading.span_id]
        assert {span.trace_id for span in calls} == {reading.trace_id}
        assert len(calls) == one["turns"] + one["verification"]["calls"]
        assert values(reading)["memagent.turns"] == one["turns"]
        assert values(reading)["gen_ai.usage.input_tokens"] == sum(
            values(span)["gen_ai.usage.input_tokens"] for span in calls
        )
        assert {values(span)["server.address"] for span in calls} == {"127.0.0.1"}
    assert len(receiver.spans) == len(server.requests) + 3
    for written in (b"tells of", b"the code?", b"4821973", b"mem-"):
        assert not [body for body in receiver.bodies if written in body]
