"""Traces: what the spans of readings and of calls of the model say, and that without a switch there are none."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import memagent
from memagent import tracing
from memagent.models.open import OpenModel, open_model
from memagent.models.scripted import ScriptedModel
from tests.faults import Fault, FaultServer
from tests.test_follow_up import OPTIONS, TEXT, model, script, served

SWITCHES = (
    "OTEL_TRACES_EXPORTER",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_SDK_DISABLED",
)
DOCUMENT = memagent.from_text(TEXT)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What a program that has set up OpenTelemetry itself is given."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The environment without a switch, to be given some."""
    for name in SWITCHES:
        monkeypatch.delenv(name, raising=False)
    tracing._own.cache_clear()
    yield monkeypatch
    tracing._own.cache_clear()


def parted(spans: InMemorySpanExporter) -> tuple[list[ReadableSpan], list[ReadableSpan]]:
    """The spans of readings, and those of calls."""
    found = spans.get_finished_spans()
    calls = [one for one in found if one.name.startswith("chat ")]
    return [one for one in found if one not in calls], calls


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_reading_at_a_server_is_a_span_with_its_calls_in_it(spans: InMemorySpanExporter, tmp_path) -> None:
    with FaultServer(served) as server, memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        opened = open_model("scripted", base_url=server.url)
        found = memagent.read(DOCUMENT, "the code?", model=opened, journal=journal, **OPTIONS)
        opened.engine.close()
        port = int(server.url.split(":")[2].removesuffix("/v1"))
    [reading], calls = parted(spans)
    asked = {
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "scripted",
        "server.address": "127.0.0.1",
        "server.port": port,
    }
    used = [found.usage, found.verification]
    assert (reading.name, reading.kind, reading.status.status_code) == (
        "invoke_agent memagent",
        trace.SpanKind.INTERNAL,
        trace.StatusCode.UNSET,
    )
    assert attributes(reading) == asked | {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "memagent",
        "gen_ai.conversation.id": found.id,
        "memagent.reader": "memory",
        "memagent.turns": found.turns,
        "memagent.turns_resumed": 0,
        "memagent.status": "answered",
        "memagent.answer_status": "supported",
        "gen_ai.usage.input_tokens": sum(one.prompt_tokens for one in used),
        "gen_ai.usage.output_tokens": sum(one.completion_tokens for one in used),
        "gen_ai.usage.cache_read.input_tokens": 0,
    }
    assert len(calls) == len(server.requests) == found.turns + found.verification.calls
    for call, request in zip(calls, server.requests, strict=True):
        values = attributes(call)
        assert (call.name, call.kind) == ("chat scripted", trace.SpanKind.CLIENT)
        assert call.parent is not None
        assert call.parent.span_id == reading.context.span_id
        assert reading.start_time <= call.start_time < call.end_time <= reading.end_time
        assert values.pop("memagent.turn.kind") in ("update", "answer", "verify")
        assert values.pop("gen_ai.usage.output_tokens") > 0
        assert values == asked | {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.max_tokens": request["max_tokens"],
            "gen_ai.response.finish_reasons": ("stop",),
            "gen_ai.usage.input_tokens": sum(len(one["content"].split()) for one in request["messages"]),
            "gen_ai.usage.cache_read.input_tokens": 0,
        }


def both_ways(opened: OpenModel) -> list[memagent.Reading]:
    """Two questions, read together in every way in which Python can ask for that."""

    async def main() -> list[memagent.Reading]:
        # Like a notebook, which runs an event loop already.
        blocking = memagent.read_many(DOCUMENT, ["the code?", "who is the captain?"], model=opened, **OPTIONS)
        return blocking + await memagent.aread_many(DOCUMENT, ["the code?", "who is the captain?"], model=opened, **OPTIONS)

    return asyncio.run(main())


@pytest.mark.parametrize("where", ["in process", "at a server"])
def test_of_readings_that_run_together_each_has_its_own_calls(spans: InMemorySpanExporter, where: str) -> None:
    if where == "in process":
        found = both_ways(model())
    else:
        with FaultServer(served) as server:
            opened = open_model("scripted", base_url=server.url)
            found = both_ways(opened)
            opened.engine.close()
    readings, calls = parted(spans)
    own = {one.context.span_id: [] for one in readings}
    for call in calls:
        assert call.parent is not None
        own[call.parent.span_id].append(attributes(call))
    assert len(found) == len(readings) == 4
    for reading in readings:
        values = own[reading.context.span_id]
        assert [one["memagent.turn.kind"] for one in values].count("verify") > 0
        for name in ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"):
            assert attributes(reading)[name] == sum(one[name] for one in values) > 0


def test_a_follow_up_belongs_to_the_trace_of_its_caller(spans: InMemorySpanExporter, tmp_path) -> None:
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        path = tmp_path / "a.txt"
        path.write_text(TEXT)
        tracer = trace.get_tracer_provider().get_tracer("of the caller")
        with tracer.start_as_current_span("asked") as caller:
            first = memagent.read(path, "the code?", model=model(), journal=journal, **OPTIONS)
            memagent.follow_up(first, "who is the captain?", model=model(), journal=journal)
    readings, _ = parted(spans)
    assert {one.context.trace_id for one in readings} == {caller.get_span_context().trace_id}
    assert [attributes(one).get("memagent.reader") for one in readings] == ["memory", "kept", None]


def test_a_failure_has_its_kind_and_not_its_message(spans: InMemorySpanExporter) -> None:
    def broken(turn) -> str | Exception:
        return memagent.ModelUnavailableError(f"no answer to {turn.user}") if turn.kind == "answer" else script(turn)

    with pytest.raises(memagent.ModelUnavailableError):
        memagent.read(DOCUMENT, "the code?", model=model(broken), **OPTIONS)
    [reading], calls = parted(spans)
    for span in (reading, calls[-1]):
        assert attributes(span)["error.type"] == "ModelUnavailableError"
        assert (span.status.status_code, span.status.description, span.events) == (trace.StatusCode.ERROR, None, ())
    assert attributes(reading)["memagent.status"] == "failed"
    assert not [call for call in calls[:-1] if "error.type" in attributes(call)]


def test_a_reading_that_is_cancelled_is_interrupted(spans: InMemorySpanExporter) -> None:
    reached, go = threading.Event(), threading.Event()

    def held(turn) -> str:
        reached.set()
        go.wait(30)
        return script(turn)

    async def main() -> None:
        task = asyncio.create_task(memagent.aread(DOCUMENT, "the code?", model=model(held), **OPTIONS))
        await asyncio.to_thread(reached.wait, 30)
        task.cancel()
        await asyncio.sleep(0.05)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    [reading], calls = parted(spans)
    assert attributes(reading)["memagent.status"] == "interrupted"
    assert len(calls) == 1


def test_spans_have_no_text_and_no_key(spans: InMemorySpanExporter) -> None:
    key, asked = "sk-0123456789abcdef", "Who may terminate the agreement?"
    faults = [Fault("malformed"), Fault("status", status=503, body='{"error": "Line 30 tells of nothing"}')]
    with FaultServer(served, faults=faults) as server:
        opened = open_model("scripted", base_url=server.url.replace("//", "//ann:secret@") + "?token=hidden", api_key=key)
        memagent.read(DOCUMENT, asked, model=opened, **OPTIONS)
        opened.engine.close()
    told = "".join(one.to_json() for one in spans.get_finished_spans())
    for text in (asked, "Line 3", "tells of", "4821973", "not in the document", "0123456789", "secret", "hidden"):
        assert text not in told


def test_without_a_switch_nothing_is_imported(environment: pytest.MonkeyPatch) -> None:
    program = (
        "import sys, memagent\n"
        "model = memagent.ScriptedModel(lambda turn: 'nothing')\n"
        "from memagent.models.open import OpenModel\n"
        "memagent.read(memagent.from_text('some text'), 'what?', model=OpenModel(engine=model))\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert tracing._own() is None


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318/v1/traces"}, ["otlp"]),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ["console", "otlp"]),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, []),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "True"}, []),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "false"}, ["console"]),
    ],
)
def test_the_environment_switches_tracing_on(environment: pytest.MonkeyPatch, given: dict[str, str], names) -> None:
    for name, value in given.items():
        environment.setenv(name, value)
    assert tracing._exporters() == names


def test_the_console_exporter_prints_the_spans_of_a_command(environment: pytest.MonkeyPatch, tmp_path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    environment.setenv("OTEL_TRACES_EXPORTER", "console")
    environment.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine,deployment.environment.name=test")
    with FaultServer(served) as server:
        command = ["ask", str(tmp_path / "a.txt"), "-q", "the code?", "--model", "scripted", "--base-url", server.url]
        ran = subprocess.run([sys.executable, "-m", "memagent", *command], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert '"name": "invoke_agent memagent"' in ran.stdout
    assert '"service.name": "mine"' in ran.stdout


@pytest.mark.parametrize(
    ("given", "missing", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "opentelemetry.sdk.trace", "pip install 'memagent[otel]'"),
        ({"OTEL_TRACES_EXPORTER": "carrier-pigeon"}, None, "there is no exporter for carrier-pigeon"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, None, "otlp over grpc"),
    ],
)
def test_what_is_wrong_with_tracing_is_logged_once_and_no_reading_fails(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, given: dict[str, str], missing: str | None, said: str
) -> None:
    for name, value in given.items():
        environment.setenv(name, value)
    if missing is not None:
        environment.setitem(sys.modules, missing, None)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert memagent.read(DOCUMENT, "the code?", model=model(), **OPTIONS).answer == "4821973"
    [told] = [record.getMessage() for record in caplog.records if record.name == "memagent.tracing"]
    assert said in told


def test_a_model_in_process_has_no_address(spans: InMemorySpanExporter) -> None:
    named = OpenModel(engine=ScriptedModel(script, name="embedded@0123abcd"))
    memagent.read(DOCUMENT, "the code?", model=named, **OPTIONS)
    [reading], calls = parted(spans)
    for span in (reading, *calls):
        values = attributes(span)
        assert (values["gen_ai.request.model"], values["gen_ai.provider.name"]) == ("embedded", "memagent")
        assert "server.address" not in values
        assert span.kind == trace.SpanKind.INTERNAL
