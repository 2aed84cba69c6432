"""Files that appear whole or not at all, and files that only their owner can read."""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from memagent.errors import ConfigError, OutputError

# What file systems without locks say; NFS (the last) wants the file open for writing, which a folder cannot be.
_NO_LOCKS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EBADF)

_LOOK = 2000  # characters at the beginning of a file

_BUSY = "another process is at the run in {folder}: wait for it, or give another folder"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises OutputError, naming `path`, for what the system says against writing there."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[str]]:
    """A UTF-8 text file that appears whole when the block ends, or not at all. Links are followed.

    Raises OutputError if it cannot be written, or if something other than a file is there. What killed processes left of it
    goes, and after a failure the folders that were made for it.
    """
    check_regular(path)
    real = Path(os.path.realpath(path))
    partial = real.with_name(f"{real.name}.{os.getpid()}.partial")
    with ExitStack() as undo:
        undo.enter_context(writing(path))
        undo.callback(_remove_empty, [folder for folder in real.parents if not folder.exists()])
        undo.callback(_remove, partial)
        real.parent.mkdir(parents=True, exist_ok=True)
        _sweep(real)
        with partial.open("w", encoding="utf-8", newline="") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(real)


def create_private(path: Path) -> None:
    """Creates an empty file with mode 0600 and its folders with mode 0700, those of them that are missing."""
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


@contextmanager
def locked(folder: Path, busy: str = _BUSY) -> Iterator[None]:
    """Holds a folder for this process, as long as it lives. Raises ConfigError, with the message `busy`, if another process
    holds it. Where the system or the file system has no such locks, nothing is held."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise ConfigError(busy.format(folder=folder)) from error
        yield
    finally:
        os.close(opened)


def check_regular(path: Path) -> None:
    """Raises OutputError if a folder, a device, a pipe or a link that leads in a circle is at `path`."""
    with writing(path):
        if path.is_dir():
            raise OutputError(f"{path} is a folder: give the name of a file in it")
        if (path.exists() and not path.is_file()) or Path(os.path.realpath(path)).is_symlink():
            raise OutputError(f"{path} is not a file that can be replaced: give another name")


def check_replaceable(path: Path, what: str, signs: Iterable[str]) -> None:
    """Raises OutputError if something is at `path` that may not be made again: another file than `what` we write, which has
    one of `signs` in its beginning. An empty file may be replaced."""
    check_regular(path)
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            beginning = file.read(_LOOK)
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputError(f"{path} exists and cannot be read ({error.strerror}): choose another name") from error
    if beginning and not any(sign in beginning for sign in signs):
        raise OutputError(f"{path} exists and is not {what}: choose another name, or delete it")


def _sweep(path: Path) -> None:
    """Removes what processes that are dead left of this file."""
    if os.name != "posix":
        return  # there, os.kill ends the process
    for left in path.parent.glob(f"{glob.escape(path.name)}.*.partial"):
        pid = left.name.removeprefix(f"{path.name}.").removesuffix(".partial")
        if re.fullmatch("[0-9]{1,9}", pid) and not _lives(int(pid)):
            _remove(left)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _remove_empty(folders: list[Path]) -> None:
    """Removes folders, from the innermost on, up to the first that is not empty."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it is someone else's
    return True
