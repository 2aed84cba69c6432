"""Traces for OpenTelemetry, by its conventions for generative AI: a span for each reading, in it one for each call of the
model.

Spans have names, numbers and ids: no text of documents, questions, memories or answers, no keys, and no messages of errors,
which may quote any of these. A program that has set up OpenTelemetry itself gets them; elsewhere the standard variables of
the environment switch them on, as for every program that is traced. Otherwise nothing is imported, and a call of the model
costs a look at one variable.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from memagent.core.types import Completion, Engine, Turn, Usage, usage_of
from memagent.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import Span, Tracer

_LOG = logging.getLogger("memagent.tracing")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OTLP = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}  # exporters by protocol
_PORTS = {"http": 80, "https": 443}

# Takes the results of calls, in the order of their turns.
Told: TypeAlias = Callable[[Sequence[Completion | Exception]], None]


@dataclass(slots=True)
class ReadingSpan:
    """The span of a reading that is under way."""

    span: Span
    tracer: Tracer
    usage: Usage = field(default_factory=Usage)
    done: bool = False

    def ended(self, *, turns: int, resumed: int, status: str | None, error: BaseException | None) -> None:
        """Says what came of the reading. `status` is that of its answer, `resumed` turns were there before."""
        self.done = True
        self.span.set_attributes({"memagent.turns": turns, "memagent.turns_resumed": resumed})
        self.span.set_attribute("memagent.status", "answered" if error is None else "failed")
        if status is not None:
            self.span.set_attribute("memagent.answer_status", status)
        _end(self.span, error, self.usage)

    def given_up(self, error: BaseException | None) -> None:
        """The reading was interrupted, unless it has ended before."""
        if not self.done:
            self.span.set_attribute("memagent.status", "interrupted")
            _end(self.span, error, self.usage)


# The readings of this context, by their number. Empty where none are traced.
_UNDER_WAY: ContextVar[Sequence[ReadingSpan]] = ContextVar("memagent_readings", default=())


@contextmanager
def readings(engine: Engine, named: Sequence[tuple[str | None, str]]) -> Iterator[Sequence[ReadingSpan]]:
    """Readings that are run together, each by its id, if it has one, and the name of its reader. Yields their spans; none
    if they are not traced."""
    tracer = _tracer()
    if tracer is None:
        yield ()
        return
    spans = [ReadingSpan(_begun(tracer, engine, id, reader), tracer) for id, reader in named]
    token = _UNDER_WAY.set(spans)
    try:
        yield spans
    finally:
        _UNDER_WAY.reset(token)
        for one in spans:
            one.given_up(sys.exception())


@contextmanager
def calls(engine: Engine, turns: Sequence[tuple[int, Turn]]) -> Iterator[Told]:
    """Calls of the model that are made together: turns with the numbers of their readings. What is yielded is to be given
    their results."""
    under_way = _UNDER_WAY.get()
    if not under_way:
        yield _ignore
        return
    begun = [(under_way[index], _called(under_way[index], engine, turn)) for index, turn in turns]
    results: list[Completion | Exception] = []
    try:
        yield results.extend
    finally:
        failed = sys.exception()
        for number, (reading, span) in enumerate(begun):
            result = results[number] if results else failed
            if isinstance(result, Completion):
                span.set_attribute("gen_ai.response.finish_reasons", [result.finish])
                usage = usage_of([result])
                reading.usage += usage
                _end(span, None, usage)
            else:
                _end(span, result, Usage())


@contextmanager
def incoming(headers: Mapping[str, str]) -> Iterator[None]:
    """Readings that begin in here belong to the trace that a request names in its headers (W3C Trace Context), if any."""
    with ExitStack() as stack:
        if "traceparent" in headers and _tracer() is not None:
            from opentelemetry import context
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

            stack.callback(context.detach, context.attach(TraceContextTextMapPropagator().extract(headers)))
        yield


def start() -> None:
    """Sets tracing up now rather than with the first reading, so that what is wrong with it is said at once."""
    _tracer()


def _begun(tracer: Tracer, engine: Engine, id: str | None, reader: str) -> Span:
    named = {"gen_ai.agent.name": "memagent", "memagent.reader": reader}
    conversation = {} if id is None else {"gen_ai.conversation.id": id}
    operation = {"gen_ai.operation.name": "invoke_agent"}
    return tracer.start_span("invoke_agent memagent", attributes={**operation, **_model(engine), **named, **conversation})


def _called(reading: ReadingSpan, engine: Engine, turn: Turn) -> Span:
    from opentelemetry.trace import SpanKind, set_span_in_context

    model = _model(engine)
    asked = {"gen_ai.request.max_tokens": turn.max_tokens, "memagent.turn.kind": turn.kind}
    return reading.tracer.start_span(
        f"chat {model['gen_ai.request.model']}",
        context=set_span_in_context(reading.span),
        kind=SpanKind.CLIENT if "server.address" in model else SpanKind.INTERNAL,
        attributes={"gen_ai.operation.name": "chat", **model, **asked},
    )


def _model(engine: Engine) -> dict[str, str | int]:
    """What is asked, from an engine's identity: "openai:NAME@URL" for a server, else NAME@VERSION."""
    name, _, where = engine.identity.rpartition("@")
    url = urlsplit(where)
    if url.hostname is None:
        return {"gen_ai.provider.name": "memagent", "gen_ai.request.model": name or where}
    provider, _, model = name.partition(":")
    return {
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "server.address": url.hostname,
        "server.port": url.port or _PORTS[url.scheme],
    }


def _end(span: Span, error: BaseException | None, usage: Usage) -> None:
    """Ends a span. Of an error only the kind is told."""
    if error is not None:
        from opentelemetry.trace import StatusCode

        span.set_attribute("error.type", type(error).__name__)
        span.set_status(StatusCode.ERROR)
    if usage.calls:
        span.set_attributes(
            {
                "gen_ai.usage.input_tokens": usage.prompt_tokens,
                "gen_ai.usage.output_tokens": usage.completion_tokens,
                "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
            }
        )
    span.end()


def _ignore(_: Sequence[Completion | Exception]) -> None:
    pass


def _tracer() -> Tracer | None:
    """The tracer of a program that has set up OpenTelemetry, or else ours; None: nothing is traced."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None and not isinstance(provider := trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return _named(provider)
    return _own()


@cache
def _own() -> Tracer | None:
    """The tracer that the environment asks for. What is wrong with that is logged: no reading fails for its trace."""
    names = _exporters()
    if not names:
        return None
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(resource=_resource())
        for name in names:
            provider.add_span_processor(BatchSpanProcessor(_exporter(name)()))
    except ImportError:
        _LOG.warning("%s", str(MissingExtraError("the environment switches tracing on (OTEL_…), which", "otel")))
        return None
    except ConfigError as error:
        _LOG.warning("nothing is traced: %s", str(error))
        return None
    return _named(provider)


def _named(provider: Any) -> Tracer:
    from memagent import __version__

    tracer: Tracer = provider.get_tracer("memagent", __version__)
    return tracer


def _exporters() -> list[str]:
    """The names of the exporters that the environment asks for."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    usual = "otlp" if any(map(os.environ.get, _ENDPOINTS)) else ""
    given = (os.environ.get("OTEL_TRACES_EXPORTER") or usual).split(",")
    return [name for name in map(str.strip, given) if name not in ("", "none")]


def _exporter(name: str) -> Callable[[], Any]:
    """The class of an exporter, which packages register by name. Raises ConfigError if there is none."""
    from importlib.metadata import entry_points

    protocol = next(filter(None, map(os.environ.get, _PROTOCOLS)), "http/protobuf")
    found = entry_points(group="opentelemetry_traces_exporter")
    own = _OTLP.get(protocol, protocol) if name == "otlp" else name
    if own not in found.names:
        known = ", ".join(sorted(found.names))
        wanted = f"otlp over {protocol}" if name == "otlp" else name
        raise ConfigError(f"there is no exporter for {wanted}: install its package, or use one of {known}")
    exporter: Callable[[], Any] = found[own].load()
    return exporter


def _resource() -> Resource:
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    from memagent import __version__

    usual = Resource({"service.name": "memagent", "service.version": __version__})
    return Resource.create(usual.merge(OTELResourceDetector().detect()).attributes)
