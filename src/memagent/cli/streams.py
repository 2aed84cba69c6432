"""Standard output, whose errors say that they are its own, and standard error, which may be lost."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, cast


class OutputLost(Exception):  # noqa: N818  # no error of memagent: the console catches it
    """Standard output does not take what is written: why, or nothing if its reader has gone away."""


def prepare_streams() -> None:
    """Lets what is written to a closed standard output go nowhere, and writes characters that the encoding of the terminal
    or file does not support as escapes. What cannot be written to standard error is lost."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # for as long as we run
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = cast(TextIO, _Output(sys.stdout))
    if sys.stderr is not None:
        sys.stderr = cast(TextIO, Lenient(sys.stderr))


class _Output:
    """Standard output, or its buffer, whose errors say that they are its own."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        with _writing():
            return int(self._stream.write(data))

    def writelines(self, lines: Iterable[Any]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with _writing():
            self._stream.flush()

    @property
    def buffer(self) -> _Output:
        return _Output(self._stream.buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputLost("" if isinstance(error, BrokenPipeError) else error.strerror) from error


class Lenient:
    """A stream for progress and warnings. If nobody reads them any more, or their disk is full, the reading goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
