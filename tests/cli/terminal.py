"""The command as a real process, on a real pseudo-terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


class Terminal:
    """Runs `memagent` with standard error (and with `both`, output) on a terminal; `shown` is all that came to it."""

    def __init__(self, *arguments: object, columns: int = 80, both: bool = False, **environment: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        env = {**os.environ, "TERM": "xterm-256color", **environment}
        for name in ("COLUMNS", "LINES", "NO_COLOR", "CI"):
            env.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "memagent", *map(str, arguments)],
            stdout=slave if both else subprocess.PIPE,
            stderr=slave,
            stdin=subprocess.DEVNULL,
            env=env,
            start_new_session=True,
        )
        os.close(slave)
        self._data = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def shown(self) -> str:
        return self._data.decode("utf-8", "replace")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def finish(self, seconds: float = 60.0) -> int:
        """Waits for the end and returns the exit status."""
        if self.process.stdout is not None:
            self.out = self.process.stdout.read().decode()
        code = self.process.wait(seconds)
        self._thread.join(5)
        return code

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._thread.join(5)
        os.close(self._master)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the terminal is closed when the process ends
            while data := os.read(self._master, 4096):
                self._data += data


def handled(pid: int) -> bool:
    """Whether the process has got as far as its own handler of SIGTERM."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)
