"""Puts a service together and serves it."""

from __future__ import annotations

import errno
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import uvicorn

from memagent.batch.shared import SharedEngine
from memagent.core import READERS
from memagent.core.readers.chunkwise import OPTIONAL
from memagent.errors import ConfigError, MemagentError
from memagent.files import create_private, locked
from memagent.journal import Journal
from memagent.models.open import OpenModel
from memagent.server.app import create_app
from memagent.server.documents import Shelf
from memagent.server.guard import LOOPBACK, Guard
from memagent.server.jobs import Jobs
from memagent.server.keys import LOCAL, Keys
from memagent.server.metrics import Metrics
from memagent.server.patience import PatientProtocol
from memagent.server.reading import Desk
from memagent.server.state import Service
from memagent.server.store import Store
from memagent.server.values import Job, Limits
from memagent.settings import AUTO, ReadingOptions, make_settings

_TAKEN = "another service has its data in {folder}: end it first, or give another --folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a service is reached, where its data are, and who may use it. `drain`: see `_Server`; `operator`: the key that
    sees the metrics of all keys."""

    host: str
    port: int
    folder: Path
    keys: Path | None = None
    root: Path | None = None
    drain: float = 0.0
    operator: str | None = None

    def check(self) -> None:
        """Raises ConfigError for a place that others can reach without keys, for bad keys, or a root that is no folder."""
        names = Keys(self.keys).names if self.keys is not None else set()
        if self.operator is not None and self.operator not in names:
            raise ConfigError(f"--operator {self.operator}: there is no key of that name; names are those of --keys")
        if self.keys is None and self.host not in LOOPBACK:
            raise ConfigError(
                f"--host {self.host} can be reached from other machines: give --keys FILE"
                " (memagent serve-key NAME --keys FILE adds one), or serve on 127.0.0.1"
            )
        if self.root is not None and not self.root.is_dir():
            raise ConfigError(f"--root {self.root} is no folder")
        if self.root is not None and self.folder.resolve().is_relative_to(self.root.resolve()):
            raise ConfigError(
                f"--root {self.root} holds the data of the service ({self.folder}), which are no documents: give another"
                " --root, or another --folder"
            )

    def bound(self) -> list[socket.socket]:
        """Sockets of the place, one for each address of the host. Raises ConfigError where there can be none, or where one
        of them is taken."""
        with ExitStack() as failed:
            sockets, errors, port = list[socket.socket](), list[OSError](), self.port
            for family, address in self._addresses():
                try:
                    sockets.append(failed.enter_context(socket.create_server((address, port), family=family)))
                    port = sockets[-1].getsockname()[1]
                except OSError as error:  # a machine may have no IPv6, whatever the name stands for
                    errors.append(error)
            taken = [error for error in errors if error.errno == errno.EADDRINUSE]
            if taken or not sockets:
                raise self._unreachable((taken or errors)[0])
            failed.pop_all()
        return sockets

    def _addresses(self) -> list[tuple[int, str]]:
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            raise self._unreachable(error) from error
        return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))

    def _unreachable(self, error: OSError) -> ConfigError:
        why = str(error.strerror).partition(" (while attempting")[0]  # which repeats the address
        return ConfigError(f"cannot serve on {self.host}, port {self.port}: {why}; choose another --host or --port")


def serve(place: Place, app: Guard, service: Service, model: str, say: Callable[[str], None]) -> None:
    """Serves what was `built` until the process is told to end; readings under way go on with the next start.

    Says by `say` where it serves, once it is reached there. Raises ConfigError if it cannot be.
    """
    with ExitStack() as stack:
        listening = [stack.enter_context(one) for one in place.bound()]
        config = uvicorn.Config(
            app,
            http=PatientProtocol,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=64 << 10,
        )
        host = f"[{place.host}]" if ":" in place.host else place.host
        url = f"http://{host}:{listening[0].getsockname()[1]}"
        say(f"{url}/ · for OpenAI clients {url}/v1 · model {model} · data in {place.folder}")
        _Server(config, service, place.drain).run(listening)


class _Server(uvicorn.Server):
    """A server for which being told to end is no interrupt: it ends as it should, and tells those who listen.

    For `drain` seconds before that it answers as ever, takes no more readings, and is not ready, so that a load balancer
    turns to others. Being told once more ends it at once.
    """

    def __init__(self, config: uvicorn.Config, service: Service, drain: float) -> None:
        super().__init__(config)
        self._service, self._drain, self._told = service, drain, False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._drain and self.started and not self._told:
            self._service.jobs.refuse(self._drain, lambda: None if self.should_exit else self._end(sig, frame))
        else:
            self._end(sig, frame)
        self._told = True

    def _end(self, sig: int, frame: FrameType | None) -> None:
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
    keys = Keys(place.keys) if place.keys is not None else None
    create_private(place.folder / "service.sqlite3")
    stack.enter_context(locked(place.folder, _TAKEN))
    journal = stack.enter_context(Journal.open(place.folder / "journal.sqlite3"))
    store = Store(place.folder)
    stack.callback(store.close)
    shelf, metrics = Shelf(store, place.root), Metrics()
    if opened.engine.lockstep:
        opened = replace(opened, engine=SharedEngine(opened.engine, opened.engine.concurrency))
    desk = Desk(
        store=store, journal=journal, shelf=shelf, opened=opened, model=model, base_url=base_url, options=options
    )  # fmt: skip
    asked = Job(owner=LOCAL, question="what?")
    desk.check_settings(desk.settings(asked, may_be_away=True), asked.question)  # what cannot work is said before it serves
    service = Service(
        jobs=Jobs(desk, limits, metrics),
        store=store,
        limits=limits,
        metrics=metrics,
        keys=keys,
        operator=place.operator,
        readers=tuple(readers_for(opened, model, base_url, options)),
    )
    return create_app(service), service


def readers_for(opened: OpenModel, model: str, base_url: str | None, options: ReadingOptions) -> list[str]:
    """The readers that a model was trained for, its profile has the words for and what is installed suffices for, and the
    one that the operator chose."""
    found = []
    for name in (AUTO, *READERS):
        chosen = name in (AUTO, options.get("reader"))
        if name in ("kept", "together") or not (chosen or opened.trained_for(name)):
            continue
        if name != AUTO and getattr(READERS[name], "ranks", False) and find_spec("bm25s") is None:
            continue
        try:
            own: ReadingOptions = {**options, "reader": name, "reader_options": {}}
            settings = make_settings(opened, model=model, base_url=base_url, may_be_away=True, **own)
        except MemagentError:
            continue
        needed = () if name == AUTO else (one for one in READERS[name]().templates if one not in OPTIONAL)
        if all(getattr(settings.profile, one) for one in needed):
            found.append(name)
    return found
