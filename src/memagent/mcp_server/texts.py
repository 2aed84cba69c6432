"""Texts that came with a request, kept as files: a reading of one can be gone on with like that of any file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

from memagent.documents import Document, load
from memagent.documents.document import Loading
from memagent.errors import DocumentError
from memagent.files import atomic_file

MOST = 2_000_000  # characters of a text; longer ones belong in a file


@dataclass(frozen=True, slots=True)
class Texts:
    """`folder` has the texts, under names that follow from what they are."""

    folder: Path
    _writing: Lock = field(default_factory=Lock, compare=False, repr=False)  # the same text may come twice at once

    def keep(self, text: str) -> str:
        """The path of the file with a text. Raises DocumentError for what is no text, or too long."""
        if len(text) > MOST:
            raise DocumentError(f"the text has {len(text):,} characters, the limit is {MOST:,}: give the path of a file")
        if not text.strip():
            raise DocumentError("there is nothing to read, the text is empty or blank: give some text, or a path")
        try:
            digest = hashlib.sha256(text.encode()).hexdigest()
        except UnicodeEncodeError as error:
            raise DocumentError(
                f"the text has a lone surrogate at character {error.start}, which is no character"
            ) from None
        path = self.folder / f"{digest[:32]}.txt"
        with self._writing:
            if not path.exists():
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                with atomic_file(path) as file:
                    file.write(text)
        return str(path)

    def has(self, path: str) -> bool:
        """Whether a path is that of a text."""
        return Path(path).parent == self.folder

    @contextmanager
    def opened(self, paths: Sequence[str], loading: Loading) -> Iterator[Document]:
        """A document of files or a text, which is called "text"."""
        with load(paths, **loading) as document:
            document.files = tuple(replace(file, name="text") if self.has(file.name) else file for file in document.files)
            yield document
