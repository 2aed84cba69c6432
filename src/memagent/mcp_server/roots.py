"""Which files a client may have read: those below our folders and, if it names folders of its own, below one of those too.

A path is taken for what it leads to: links are followed before it is compared, and so are those in a folder and what a
pattern matches.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from memagent.documents.discovery import STDIN, discover
from memagent.errors import ConfigError, DocumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """`folders` are ours, `announced` those of the client (None: it names none). Both are without links."""

    folders: tuple[Path, ...]
    announced: tuple[Path, ...] | None = None

    @classmethod
    def of(cls, folders: Iterable[Path]) -> Roots:
        """Our folders. Raises ConfigError for one that is none."""
        found = tuple(Path(os.path.realpath(folder)) for folder in folders)
        for folder in found:
            if not folder.is_dir():
                raise ConfigError(f"--root {folder} is no folder: name one whose files may be read")
        return cls(folders=found)

    def narrowed(self, uris: Sequence[str]) -> Roots:
        """The same, narrowed to what a client announces. What is no file on this machine is left out."""
        paths = (_path_of(uri) for uri in uris)
        return replace(self, announced=tuple(Path(path) for path in paths if path)) if uris else self

    def holds(self, path: str | Path) -> bool:
        """Whether a path without links lies below one of our folders, and one of the client's."""
        return _below(path, self.folders) and (self.announced is None or _below(path, self.announced))

    def located(self, given: str) -> str:
        """The path or pattern that a client means, absolute and without links. Relative ones are below one of the folders.

        Raises DocumentError for what lies elsewhere, whether there is something or not.
        """
        places = self._places(given)
        place = next((one for one in places if os.path.lexists(one.beginning)), places[0])
        if not os.path.lexists(place.beginning):
            where = ", ".join(map(str, self._bases))
            raise DocumentError(f"{given!r}: there is no such file or folder. Relative paths start at {where}")
        return str(place)

    def allows(self, given: str) -> bool:
        """Whether a path or pattern may be read, if there is something."""
        try:
            return bool(self._places(given))
        except DocumentError:
            return False

    def check(self, located: Sequence[str], *, skip_broken: bool = False) -> None:
        """Raises DocumentError if what paths, folders and patterns stand for is not there, or leads elsewhere."""
        for file in discover(located, skip_broken=skip_broken)[0]:
            if file.path is None or not self.holds(os.path.realpath(file.path)):
                raise self._outside(file.name)

    def _places(self, given: str) -> list[_Place]:
        if given in ("", STDIN):
            raise DocumentError(
                f"{given!r}: standard input belongs to the protocol. Give a path, or the text itself as text"
            )
        if glob.has_magic(given) and ".." in Path(given).parts:
            raise DocumentError(f"{given!r}: a pattern may not have '..' in it. Write out the folder that it begins with")
        places = [place for folder in self._bases if self.holds((place := _place(folder, given)).beginning)]
        if not places:
            raise self._outside(given)
        return places

    @property
    def _bases(self) -> list[Path]:
        if self.announced is None:
            return list(self.folders)
        return [folder for folder in (*self.announced, *self.folders) if self.holds(folder)] or list(self.folders)

    def _outside(self, given: str) -> DocumentError:
        where = ", ".join(map(str, self.folders))
        also = (
            "" if self.announced is None else f" and in what the client announces ({', '.join(map(str, self.announced))})"
        )
        return DocumentError(
            f"{given!r} leads outside of what may be read: files below {where}{also}. Give a path there, or start"
            " memagent mcp with another --root"
        )


def _below(path: str | Path, folders: Iterable[Path]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a path begins, without links, and the parts of a pattern after that."""

    beginning: str
    pattern: tuple[str, ...] = ()

    def __str__(self) -> str:
        # Characters of the folder's own name are no pattern.
        return str(Path(glob.escape(self.beginning), *self.pattern)) if self.pattern else self.beginning


def _place(folder: Path, given: str) -> _Place:
    """What a path means below a folder, or by itself if it is absolute. One that exists is no pattern."""
    path = Path(given)
    for beginning in (folder, Path(glob.escape(str(folder)))):
        path = path.relative_to(beginning) if path.is_relative_to(beginning) else path
    exists = os.path.lexists(folder / path)
    wild = (
        len(path.parts)
        if exists
        else next((number for number, part in enumerate(path.parts) if glob.has_magic(part)), len(path.parts))
    )
    try:
        return _Place(os.path.realpath(folder.joinpath(*path.parts[:wild])), path.parts[wild:])
    except ValueError:  # it has a NUL
        raise DocumentError(f"{given!r}: no path has such a character") from None


def _path_of(uri: str) -> str | None:
    """Where a file URI leads; None for another."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    return os.path.realpath(url2pathname(parts.path))
