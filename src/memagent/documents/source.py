"""One input while it is being read: a name for messages, and bytes that can be read twice."""

from __future__ import annotations

import errno
import importlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import BinaryIO, cast

from memagent.errors import DocumentError, MissingExtraError

CHUNK = 1 << 20
"""Bytes read at a time."""

IN_MEMORY = 4 << 20
"""Bytes up to which temporary content stays in memory; more goes to the folder for temporary files (`TMPDIR`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Seekable bytes with a name. `suffix` is the lower-case file extension, `encoding` the one the caller insists on."""

    name: str
    suffix: str
    stream: BinaryIO
    encoding: str | None = None

    def head(self, size: int) -> bytes:
        """The first `size` bytes."""
        self.stream.seek(0)
        return self.stream.read(size)

    def tail(self, size: int) -> bytes:
        """The last `size` bytes."""
        self.stream.seek(max(0, self.size() - size))
        return self.stream.read(size)

    def size(self) -> int:
        """Length in bytes."""
        return self.stream.seek(0, 2)

    def chunks(self, start: int = 0) -> Iterator[bytes]:
        """The bytes from `start` on, a megabyte at a time."""
        self.stream.seek(start)
        while chunk := self.stream.read(CHUNK):
            yield chunk

    def error(self, problem: str, remedy: str) -> DocumentError:
        """The error to raise: which file, what is wrong with it, what to do."""
        return DocumentError(f"{self.name}: {problem}. {remedy}")


OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
FAULTS = (errno.ENOSPC, errno.EDQUOT, *OUT_OF_FILES)
"""What the system says when the machine is at its limits, whichever file is being read."""


class MachineError(DocumentError):
    """The machine cannot read the document now: a disk is full, or too many files are open. No file is at fault."""

    @classmethod
    def of(cls, error: OSError) -> MachineError:
        """The error to raise for one of FAULTS, or for one of a temporary file."""
        if error.errno in OUT_OF_FILES:
            return cls(f"no more files can be opened: {error.strerror}. Close some, or raise the limit (ulimit -n)")
        return cls(
            f"cannot keep a temporary copy of the text in {tempfile.gettempdir()}: {error.strerror}. "
            "Free some space there, or name another folder in the environment variable TMPDIR"
        )


def scratch() -> BinaryIO:
    """A temporary file without a name; small content stays in memory."""
    return cast(BinaryIO, tempfile.SpooledTemporaryFile(max_size=IN_MEMORY))


def optional(module: str, feature: str) -> ModuleType:
    """Imports a library of the `documents` extra. Raises MissingExtraError, naming the feature that needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(feature, "documents") from error
