"""Paths, globs and folders → the files to read, each once, in a stable order, with a list of what was left out.

The order of the arguments is kept, since it is the order of reading. What one glob or folder stands for is sorted by name,
numbers by value: part 2 before part 10.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
import reprlib
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memagent.documents.document import Skipped
from memagent.documents.sniff import non_document
from memagent.documents.source import FAULTS, MachineError
from memagent.errors import BrokenFileError, DocumentError

STDIN = "-"
"""The path that stands for standard input."""

_LONGEST_PATH, _LONGEST_NAME = 4096, 255  # bytes, on the usual systems
_MOST_SHOWN = 200  # characters of a path in a message
_LOGIN = re.compile(r"://[^/?#]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file to read (path None: standard input). `named`: asked for by name, so it must not be skipped."""

    path: Path | None
    named: bool

    @property
    def name(self) -> str:
        """The path as the caller would write it."""
        return str(self.path) if self.path else "stdin"


def paths_of(paths: object) -> list[str | Path]:
    """The paths that a caller gives, one or several. Raises DocumentError for what is none, such as bytes or a file."""
    if isinstance(paths, str | Path):
        return [paths]
    if isinstance(paths, bytes | bytearray | memoryview) or hasattr(paths, "read") or not isinstance(paths, Iterable):
        raise _no_path(paths)
    given = list(paths)
    for path in given:
        if not isinstance(path, str | Path):
            raise _no_path(path)
    return given


def _no_path(given: object) -> DocumentError:
    return DocumentError(
        f"a document is named by its path (str or Path), or by a list of them, not by {type(given).__name__} "
        f"({reprlib.repr(given)}). For the text of an open file or of bytes, hand in memagent.from_text(text)"
    )


def discover(paths: Sequence[str | Path], *, skip_broken: bool = False) -> tuple[list[Found], list[Skipped]]:
    """The files that paths, globs and folders stand for. Raises DocumentError for what is missing or unreadable; with
    `skip_broken`, what is so in a folder or glob is left out."""
    if not paths:
        raise DocumentError("no document was given: name a file, a folder, a glob such as 'notes/**/*.md', or - for stdin")
    files: dict[str, Found] = {}
    skipped: dict[str, Skipped] = {}
    for path in paths:
        for item in _expand(str(path), skip_broken):
            if isinstance(item, Skipped):
                skipped.setdefault(item.path, item)
            else:
                files.setdefault(os.path.realpath(item.path) if item.path else STDIN, item)
    if not files:
        raise nothing_to_read(paths, list(skipped.values()))
    return list(files.values()), list(skipped.values())


def broken(path: str, error: DocumentError, *, skip_broken: bool) -> Skipped:
    """What cannot be read in a folder or glob, to be left out. Raises BrokenFileError if that was not asked for, and
    `error` itself if no file is at fault."""
    if isinstance(error, MachineError | BrokenFileError):
        raise error
    if not skip_broken:
        raise BrokenFileError(*error.args) from error
    return Skipped(path=path, reason=str(error), broken=True)


def nothing_to_read(paths: Sequence[str | Path], skipped: Sequence[Skipped]) -> DocumentError:
    """The error for folders and globs in which every file was left out, or which hold none."""
    where = ", ".join(str(path) for path in paths)
    # The reason of a broken one names it.
    shown = "; ".join(item.reason if item.broken else f"{item.path}: {item.reason}" for item in skipped[:5])
    more = f" and {len(skipped) - 5} more" if len(skipped) > 5 else ""
    left_out = f" Left out: {shown}{more}." if skipped else ""
    return DocumentError(f"{where}: there is no document to read here.{left_out} Name a file, or another folder")


def _expand(path: str, skip_broken: bool) -> Iterator[Found | Skipped]:
    """What one argument stands for. An existing path is never taken for a glob, whatever characters it has."""
    if path == STDIN:
        yield Found(path=None, named=True)
    elif "\0" in path or not os.path.lexists(path):
        yield from _glob(path, skip_broken)
    else:
        yield from _existing(Path(path), skip_broken, named=True)


def _glob(pattern: str, skip_broken: bool) -> Iterator[Found | Skipped]:
    if _is_text(pattern):
        raise DocumentError(
            f"{_shown(pattern)}: these {len(pattern):,} characters are no path. "
            "If they are the text to read, give it on standard input (-), or memagent.from_text(text) in Python"
        )
    if "\0" in pattern or not glob.has_magic(pattern):
        raise DocumentError(f"{_shown(pattern)}: there is no such file or folder. {_remedy(pattern)}")
    parts = Path(pattern).parts
    fixed = Path(*itertools.takewhile(lambda part: not glob.has_magic(part), parts))
    wild = parts[len(fixed.parts) :]
    matches = sorted(map(str, _matches(fixed, wild)), key=_natural)
    closed = [broken(str(folder), error, skip_broken=skip_broken) for folder, error in _closed(fixed, wild)]
    if not matches and not closed:
        raise DocumentError(f"{_shown(pattern)}: no file matches this pattern. {_remedy(pattern)}")
    yield from closed
    for match in matches:
        yield from _part(Path(match), skip_broken)


def _is_text(path: str) -> bool:
    """Whether what names nothing is no path but text: it has several lines, or is longer than a path can be."""
    size = len(path.encode(errors="surrogatepass"))
    names = path.encode(errors="surrogatepass").split(b"/") if size <= _LONGEST_PATH else []
    return "\n" in path or "\r" in path or size > _LONGEST_PATH or max(map(len, names)) > _LONGEST_NAME


def _shown(path: str) -> str:
    """A path in quotes; of a long one, the beginning and the end. Of a URL, without what may be secret."""
    if "://" in path:
        path = _LOGIN.sub("://", path).partition("?")[0]
    return repr(path) if len(path) <= _MOST_SHOWN else f"{path[: _MOST_SHOWN - 20]!r}…{path[-20:]!r}"


def _remedy(path: str) -> str:
    """What to do about a path or pattern that stands for nothing."""
    if "://" in path:
        return "Download it first"
    return "Check its name" if Path(path).is_absolute() else f"Relative paths start at {Path.cwd()}"


def _matches(fixed: Path, wild: Sequence[str]) -> Iterator[Path]:
    """Paths below a folder that match, hidden ones only if the pattern says so. By pathlib: glob.glob follows links, in
    circles too."""
    hidden_too = any(part.startswith(".") for part in wild)
    try:
        for match in fixed.glob("/".join(wild)):
            if hidden_too or not any(part.startswith(".") for part in match.relative_to(fixed).parts):
                yield match
    except OSError as error:
        raise _unreadable(fixed, error) from error
    except ValueError as error:  # for example a**b
        pattern = _shown(str(Path(fixed, *wild)))
        raise DocumentError(f"{pattern}: not a pattern ({error}). Use * within a name and ** for any folders") from error


def _closed(fixed: Path, wild: Sequence[str]) -> Iterator[tuple[Path, DocumentError]]:
    """The folders in which a pattern looks for names and that cannot be opened: pathlib passes over them in silence."""
    folders = {fixed, *(folder for end in range(1, len(wild)) for folder in _matches(fixed, wild[:end]))}
    for folder in sorted(folders):
        try:
            if folder.is_dir():
                os.scandir(folder).close()
        except OSError as error:
            yield folder, _unreadable(folder, error)


def _part(path: Path, skip_broken: bool, *, followed: bool = True) -> Iterator[Found | Skipped]:
    """What an entry of a folder, or a match of a pattern, stands for."""
    try:
        yield from _existing(path, skip_broken, named=False, followed=followed)
    except DocumentError as error:
        yield broken(str(path), error, skip_broken=skip_broken)


def _existing(path: Path, skip_broken: bool, *, named: bool, followed: bool = True) -> Iterator[Found | Skipped]:
    """A file, or the files in a folder. `named` files are read or refused; others may be skipped with a reason, and so is a
    link to a folder that is not to be `followed`."""
    try:
        mode, leads_on = path.stat().st_mode, path.is_symlink()
    except FileNotFoundError as error:
        raise DocumentError(f"{path}: a link to something that is gone. Restore or delete it") from error
    except OSError as error:
        raise _unreadable(path, error) from error
    if stat.S_ISDIR(mode) and leads_on and not followed:
        yield Skipped(path=str(path), reason="a link to a folder")
    elif stat.S_ISDIR(mode):
        yield from _folder(path, skip_broken)
    elif not stat.S_ISREG(mode) and named:
        raise DocumentError(f"{path}: a pipe, socket or device, not a file. To read from a pipe, name it - (stdin)")
    elif not stat.S_ISREG(mode):
        yield Skipped(path=str(path), reason="a pipe, socket or device")
    elif not named and (what := non_document(path.name)):
        yield Skipped(path=str(path), reason=what)
    else:
        yield Found(path=path, named=named)


def _folder(folder: Path, skip_broken: bool) -> Iterator[Found | Skipped]:
    """Every file below a folder, links to folders not followed (they may lead in circles)."""
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: _natural(entry.name))
    except OSError as error:
        raise _unreadable(folder, error) from error
    for entry in entries:
        if entry.name.startswith("."):
            yield Skipped(path=str(entry), reason="hidden")
        else:
            yield from _part(entry, skip_broken, followed=False)


def _natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key that compares runs of digits by value."""
    parts = re.split(r"([0-9]+)", name)
    return [(0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part) for part in parts if part]


def _unreadable(path: Path, error: OSError) -> DocumentError:
    if error.errno in FAULTS:
        return MachineError.of(error)
    return DocumentError(f"{path}: cannot be read ({error.strerror}). Check its permissions")
