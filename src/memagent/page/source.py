"""The document of a reading, loaded again from where the journal says it was, or the reason why it cannot be shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from memagent.api import document_loading, document_paths
from memagent.documents import Document, load
from memagent.errors import JournalError, MemagentError
from memagent.journal import ReadingRecord
from memagent.stored import listed, number


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`document` is None if it cannot be shown. Its first `size` characters are what was read. `note` says in a sentence
    why it is not shown, or that it has grown; "" if there is nothing to say."""

    document: Document | None = None
    size: int
    note: str = ""


@contextmanager
def reopened(record: ReadingRecord, opened: Callable[[], Document] | None = None) -> Iterator[Source]:
    """The document of a reading, which is closed afterwards. What is wrong with it is no error here, but a note.

    `opened` loads it, and raises MemagentError; None: it is loaded from the paths in the journal.
    """
    size = number(record.document.get("characters"))
    try:
        paths = document_paths(record) if opened is None else []
    except JournalError:
        yield Source(
            size=size, note="The document is not shown: it was read from standard input, from memory or by a watch."
        )
        return
    with ExitStack() as stack:
        try:
            document = stack.enter_context(opened() if opened else load(paths, **document_loading(record)))
        except MemagentError as error:
            yield Source(size=size, note=f"The document is not shown: it could not be loaded again ({error}).")
            return
        yield _checked(record, document, size)


def _checked(record: ReadingRecord, document: Document, size: int) -> Source:
    digest = record.document.get("digest")
    _rename(document, record)
    if document.digest == digest:
        return Source(document=document, size=len(document))
    if len(document) > size > 0 and document.digest_of(0, size) == digest:
        grown = f"The document has grown by {len(document) - size:,} characters since. They are not shown."
        return Source(document=document, size=size, note=grown)
    return Source(size=size, note="The document is not shown: it has changed since it was read.")


def _rename(document: Document, record: ReadingRecord) -> None:
    """Gives its files the names that they were read by: those may be relative, and the paths in the journal are not."""
    described = listed(record.document.get("files"))
    if len(described) <= len(document.files):  # those of a folder that has grown come after them
        pairs = zip(document.files, described, strict=False)
        named = [replace(file, name=str(one.get("name", file.name))) for file, one in pairs]
        document.files = (*named, *document.files[len(named) :])
