"""A connection to a Ray cluster, for batches and for training."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from memagent.errors import MemagentError


@contextmanager
def connected(
    address: str, variables: Mapping[str, str], refusal: type[MemagentError], way_out: str, **options: Any
) -> Iterator[None]:
    """A connection to the cluster at HOST:PORT, or to one of its own ("local"), which ends with it.

    Processes there have these environment `variables`, and the PYTHONPATH of this one; `options` are those of `ray.init`.
    Raises `refusal`, which ends with the `way_out`, if there is no cluster.
    """
    import ray  # its own extra

    if "PYTHONPATH" in os.environ:
        variables = {**variables, "PYTHONPATH": os.environ["PYTHONPATH"]}
    # Of a job that was submitted to Ray: what it sets may not be set again.
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")).get("runtime_env") or {}
    given = job.get("env_vars") or {}
    if own := {name: value for name, value in variables.items() if name not in given}:
        options["runtime_env"] = {"env_vars": own}
    if address == "local":
        options["include_dashboard"] = False
    try:
        _knock(address)
        with _own_signals():
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except (OSError, RuntimeError, ValueError) as error:
        if address == "local":
            raise refusal(f"Ray cannot be started here: {last_line(error)}") from error
        raise refusal(
            f"no Ray cluster can be reached at {address!r}: {last_line(error)}. Start one (`ray start --head`, with the"
            f" same RAY_AUTH_MODE here and there), or {way_out}"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def last_line(error: BaseException) -> str:
    """The last line of an error, without Ray's guesses at why a process ended."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].split(" Worker exit")[0].strip().rstrip(".") if lines else type(error).__name__


@contextmanager
def _own_signals() -> Iterator[None]:
    """Leaves SIGTERM to those who handle it: Ray would end the process at once."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    with suppress(ValueError):  # not in the main thread, where Ray leaves it as well
        signal.signal(signal.SIGTERM, handler)


def _knock(address: str) -> None:
    """Raises OSError if no process listens at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=20).close()
