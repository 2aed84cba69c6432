"""Owners of readings, and whether their processes still run."""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

STALE_SECONDS = 900.0
"""Seconds without a turn after which an owner that cannot be checked (another machine, no /proc) counts as dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One open journal in one process. `started` distinguishes processes with the same number ("": unknown)."""

    host: str
    pid: int
    started: str
    nonce: str

    @classmethod
    def current(cls) -> Owner:
        """A new owner in this process."""
        pid = os.getpid()
        return cls(host=_host(), pid=pid, started=_started(pid), nonce=secrets.token_hex(4))

    @classmethod
    def loads(cls, text: str) -> Owner:
        """The owner that `dumps` wrote."""
        return cls(**json.loads(text))

    def dumps(self) -> str:
        """The owner as text; equal owners give equal text."""
        return json.dumps(asdict(self))

    def alive(self, idle: float) -> bool:
        """Whether the process seems to run. Its last turn was `idle` seconds ago."""
        if self.host != _host() or os.name != "posix":  # os.kill(pid, 0) would interrupt the process on Windows
            return idle <= STALE_SECONDS
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # another user's process: it exists
        started = _started(self.pid)
        return started == self.started if started and self.started else idle <= STALE_SECONDS

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.partition(' ')[0]}"


def _host() -> str:
    """The machine and its process-number space: containers may share a host name but not process numbers."""
    try:
        return f"{socket.gethostname()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str:
    """Boot and clock tick at which process `pid` started; "gone" for a zombie; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # The name, field 2, is in parentheses and may contain anything; state (3) … start (22) follow.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return "gone" if fields[0] in "ZX" else f"{boot} {fields[19]}"
    except (OSError, IndexError):
        return ""
