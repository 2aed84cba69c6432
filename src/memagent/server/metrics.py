"""What operators watch: counters for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, Metric, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

from memagent import __version__
from memagent.server.values import Job

_SECONDS = (0.1, 0.5, 1, 5, 15, 60, 300, 1800, 7200)


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._readings = Counter("memagent_readings", "Readings that ended.", ["status"], registry=registry)
        self._failures = Counter("memagent_failures", "Readings that failed, by why.", ["kind"], registry=registry)
        self._answers = Counter("memagent_answers", "Answers by what verification said.", ["status"], registry=registry)
        self._turns = Counter("memagent_turns", "Turns of readings that were answered.", ["outcome"], registry=registry)
        self._tokens = Counter("memagent_tokens", "Tokens in and out.", ["key"], registry=registry)
        self._requests = Counter("memagent_requests", "HTTP requests.", ["route", "code"], registry=registry)
        self._seconds = Histogram(
            "memagent_reading_seconds", "Seconds from begin to end of a reading.", buckets=_SECONDS, registry=registry
        )
        self._latency = Histogram(
            "memagent_request_seconds", "Seconds of HTTP requests.", ["route"], buckets=_SECONDS, registry=registry
        )
        self._waiting = Gauge("memagent_waiting", "Readings that wait.", registry=registry)
        self._running = Gauge("memagent_running", "Readings under way.", registry=registry)
        about = "0 from when the model's server, or room on the disk, was found missing, until a turn is answered."
        self._up = Gauge("memagent_up", about, registry=registry)
        Info("memagent_build", "What is running.", registry=registry).info({"version": __version__})
        ProcessCollector(registry=registry)

    def watch_queue(self, waiting: Callable[[], int], running: Callable[[], int], up: Callable[[], bool]) -> None:
        """Takes the length of the queue, and whether readings go on, from these functions whenever it is asked for."""
        self._waiting.set_function(waiting)
        self._running.set_function(running)
        self._up.set_function(up)

    def ended(self, job: Job, seconds: float) -> None:
        """Counts a job that is over."""
        self._readings.labels(job.status).inc()
        if job.status == "failed":
            self._failures.labels(job.kind or "internal").inc()
        self._seconds.observe(seconds)
        if job.result is not None:
            self._answers.labels(job.result["status"] or "not verified").inc()
            for outcome, count in job.result["outcomes"].items():
                self._turns.labels(outcome).inc(count)

    def spent(self, key: str, tokens: int) -> None:
        self._tokens.labels(key).inc(tokens)

    def requested(self, route: str, code: int, seconds: float) -> None:
        self._requests.labels(route, str(code)).inc()
        self._latency.labels(route).observe(seconds)

    def text(self, only: str | None = None) -> bytes:
        """All of it in Prometheus' text format; of what is counted by key, that of one key `only`."""
        return generate_latest(self.registry if only is None else _OfOne(self.registry, only))


class _OfOne(Collector):
    """What a registry collects, without what belongs to other keys."""

    def __init__(self, registry: CollectorRegistry, key: str) -> None:
        self._registry, self._key = registry, key

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            seen = copy(metric)
            seen.samples = [one for one in metric.samples if one.labels.get("key", self._key) == self._key]
            yield seen
