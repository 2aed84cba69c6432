"""Puts a service together and serves it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import uvicorn

from memagent.batch.shared import SharedEngine
from memagent.core import READERS
from memagent.errors import ConfigError, MemagentError
from memagent.journal import Journal
from memagent.models.open import OpenModel
from memagent.server.app import create_app
from memagent.server.documents import Shelf
from memagent.server.guard import LOOPBACK, Guard
from memagent.server.jobs import Jobs
from memagent.server.keys import Keys
from memagent.server.metrics import Metrics
from memagent.server.patience import PatientProtocol
from memagent.server.reading import Desk
from memagent.server.state import Service
from memagent.server.store import Store
from memagent.server.values import Limits
from memagent.settings import AUTO, ReadingOptions, make_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a service is reached, where its data are, and who may use it."""

    host: str
    port: int
    folder: Path
    keys: Path | None = None
    root: Path | None = None

    def check(self) -> None:
        """Raises ConfigError for a place that others can reach without keys, for bad keys, or a root that is no folder."""
        if self.keys is not None:
            Keys.load(self.keys)
        if self.keys is None and self.host not in LOOPBACK:
            raise ConfigError(
                f"--host {self.host} can be reached from other machines: give --keys FILE"
                " (memagent serve-key NAME --keys FILE adds one), or serve on 127.0.0.1"
            )
        if self.root is not None and not self.root.is_dir():
            raise ConfigError(f"--root {self.root} is no folder")


def serve(
    place: Place, opened: OpenModel, model: str, base_url: str | None, options: ReadingOptions, limits: Limits
) -> None:
    """Serves until the process is told to end; readings under way then stop, and go on with the next start."""
    with ExitStack() as stack:
        app, service = built(stack, place, opened, model, base_url, options, limits)
        config = uvicorn.Config(
            app,
            host=place.host,
            port=place.port,
            http=PatientProtocol,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=64 << 10,
        )
        _Server(config, service).run()


class _Server(uvicorn.Server):
    """A server for which being told to end is no interrupt: it ends as it should, and tells those who listen."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._service.jobs.hang_up()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def built(
    stack: ExitStack,
    place: Place,
    opened: OpenModel,
    model: str,
    base_url: str | None,
    options: ReadingOptions,
    limits: Limits,
) -> tuple[Guard, Service]:
    """The application of a service, and what is behind it; the stack closes its files."""
    place.check()
    keys = Keys.load(place.keys) if place.keys is not None else None
    make_settings(opened, model=model, base_url=base_url, **options)  # what cannot work is said before it serves
    journal = stack.enter_context(Journal.open(place.folder / "journal.sqlite3"))
    store = Store(place.folder)
    stack.callback(store.close)
    shelf, metrics = Shelf(store, place.root), Metrics()
    if opened.engine.lockstep:
        opened = replace(opened, engine=SharedEngine(opened.engine, opened.engine.concurrency))
    desk = Desk(
        store=store, journal=journal, shelf=shelf, opened=opened, model=model, base_url=base_url, options=options
    )  # fmt: skip
    service = Service(
        jobs=Jobs(desk, limits, metrics),
        store=store,
        limits=limits,
        metrics=metrics,
        keys=keys,
        readers=tuple(readers_for(opened, model, base_url, options)),
    )
    return create_app(service), service


def readers_for(opened: OpenModel, model: str, base_url: str | None, options: ReadingOptions) -> list[str]:
    """The readers that a model was trained for and its profile has the words for."""
    found = []
    for name in (AUTO, *READERS):
        if name in ("kept", "together") or (name != AUTO and not opened.trained_for(name)):
            continue
        try:
            own: ReadingOptions = {**options, "reader": name, "reader_options": {}}
            settings = make_settings(opened, model=model, base_url=base_url, **own)
        except MemagentError:
            continue
        if name == AUTO or all(getattr(settings.profile, one) for one in READERS[name]().templates if one != "note"):
            found.append(name)
    return found
