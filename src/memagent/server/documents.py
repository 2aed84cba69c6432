"""Where the documents of a job are, and the names by which clients know them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from memagent.documents import Document, load
from memagent.documents.discovery import discover
from memagent.errors import ConfigError, DocumentError
from memagent.server.store import Store, is_kept


@dataclass(frozen=True, slots=True)
class Shelf:
    """The documents that jobs may name: uploaded files by their ids, and, with a `root`, files below it by their paths.

    Nothing else can be read: no other path, no URL, and nothing that a link in a folder leads to elsewhere.
    """

    store: Store
    root: Path | None = None

    def check(self, documents: Sequence[str], owner: str) -> None:
        """Raises ConfigError for a document that there is not."""
        for document in documents:
            self._located(document, owner)

    def open(self, documents: Sequence[str], owner: str) -> Document:
        """The document of a job. Raises DocumentError or ConfigError, in which no path of this machine is named."""
        located = [self._located(document, owner) for document in documents]
        names = {str(path): name for path, name in located}
        try:
            found = load([path for path, _ in located])
        except DocumentError as error:
            raise DocumentError(_renamed(str(error), names)) from None
        found.files = tuple(replace(file, name=_renamed(file.name, names)) for file in found.files)
        found.skipped = tuple(replace(one, path=_renamed(one.path, names)) for one in found.skipped)
        return found

    def paths(self, documents: Sequence[str], owner: str) -> list[str]:
        """Where they are on this machine."""
        return [str(self._located(document, owner)[0]) for document in documents]

    def _located(self, document: str, owner: str) -> tuple[Path, str]:
        if (kept := self.store.file(document, owner)) is not None:
            return self.store.path(kept), kept.name
        if self.root is None or is_kept(document):
            raise ConfigError(f"there is no file {document!r}: upload it first")
        if not document.strip():
            raise ConfigError(f"a document is named {document!r}, which is no path: the root folder itself is '.'")
        root = self.root.resolve()
        try:
            path = (root / document).resolve()
            there = path.is_relative_to(root) and path.exists()
        except (OSError, ValueError):  # a name that is too long, or has a NUL
            there = False
        if not there:
            raise ConfigError(f"there is no document {document!r} below the root folder")
        if path.is_dir() and (link := _leads_outside(path, root)) is not None:
            raise ConfigError(f"{document!r} has a link that leads out of the root folder, {link}: name other documents")
        return path, document


def _leads_outside(folder: Path, root: Path) -> Path | None:
    """A file of a folder that lies elsewhere, as the folder names it."""
    try:
        found, _ = discover([folder])
    except DocumentError:  # opening it says what is wrong
        return None
    files = (file.path for file in found if file.path is not None)
    return next((file.relative_to(folder) for file in files if not file.resolve().is_relative_to(root)), None)


def _renamed(text: str, names: dict[str, str]) -> str:
    for path, name in names.items():
        text = text.replace(path, name)
    return text
