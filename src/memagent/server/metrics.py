"""What operators watch: counters for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from memagent.result import Reading
from memagent.server.values import JobStatus

_SECONDS = (0.1, 0.5, 1, 5, 15, 60, 300, 1800, 7200)


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._readings = Counter("memagent_readings", "Readings that ended.", ["status"], registry=registry)
        self._answers = Counter("memagent_answers", "Answers by what verification said.", ["status"], registry=registry)
        self._turns = Counter("memagent_turns", "Turns of readings that were answered.", ["outcome"], registry=registry)
        self._tokens = Counter("memagent_tokens", "Tokens in and out.", ["key"], registry=registry)
        self._requests = Counter("memagent_requests", "HTTP requests.", ["route", "code"], registry=registry)
        self._seconds = Histogram(
            "memagent_reading_seconds", "Seconds from begin to end of a reading.", buckets=_SECONDS, registry=registry
        )
        self._latency = Histogram("memagent_request_seconds", "Seconds of HTTP requests.", ["route"], registry=registry)
        self._waiting = Gauge("memagent_waiting", "Readings that wait.", registry=registry)
        self._running = Gauge("memagent_running", "Readings under way.", registry=registry)

    def watch_queue(self, waiting: Callable[[], int], running: Callable[[], int]) -> None:
        """Takes the length of the queue from these functions whenever it is asked for."""
        self._waiting.set_function(waiting)
        self._running.set_function(running)

    def answered(self, reading: Reading) -> None:
        self._answers.labels(reading.status or "not verified").inc()
        for outcome, count in reading.outcomes.items():
            self._turns.labels(outcome).inc(count)

    def ended(self, status: JobStatus, seconds: float) -> None:
        self._readings.labels(status).inc()
        self._seconds.observe(seconds)

    def spent(self, key: str, tokens: int) -> None:
        self._tokens.labels(key).inc(tokens)

    def requested(self, route: str, code: int, seconds: float) -> None:
        self._requests.labels(route, str(code)).inc()
        self._latency.labels(route).observe(seconds)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)
