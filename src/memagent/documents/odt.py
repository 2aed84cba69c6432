"""ODT → text, straight from its XML as a stream."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from memagent.documents.archive import Archive
from memagent.documents.flow import Flow
from memagent.documents.package import Package, Target
from memagent.documents.source import Source

_CONTENT, _MANIFEST = "content.xml", "META-INF/manifest.xml"
_VOCABULARY = "{urn:oasis:names:tc:opendocument:xmlns:"
_COUNT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}c"
_SKIPPED = frozenset({"tracked-changes", "annotation", "note-citation", "ruby-text", "forms", "title", "desc"})
"""Text that a tracked change took away, comments, the marks of notes, and the descriptions of pictures."""
_LINES = frozenset({"p", "h"})
_CELLS = frozenset({"table-cell", "covered-table-cell"})
_SPACE = re.compile(r"[ \t\n\r]+")
_MOST_SPACES = 1000


class _Target(Target):
    """A paragraph is a line; a table row is a line with tabs between its cells. Notes are kept for the end."""

    def __init__(self, flow: Flow, notes: Flow, source: Source) -> None:
        super().__init__(flow, source)
        self._body, self._notes = flow, notes
        self._cells = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = _local(tag)
        self._skipping += name in _SKIPPED
        self._cells += name in _CELLS
        self._in_text += name in _LINES
        if name == "note-body":
            self._flow = self._notes
        elif self._skipping or not self._in_text:
            return
        elif name == "tab":
            self._flow.text("\t")
        elif name == "line-break":
            self._flow.line_end()
        elif name == "s":
            count = attributes.get(_COUNT, "1")
            self._flow.text(" " * min(int(count) if count.isdecimal() else 1, _MOST_SPACES))

    def end(self, tag: str) -> None:
        name = _local(tag)
        self._skipping -= name in _SKIPPED
        self._cells -= name in _CELLS
        self._in_text -= name in _LINES
        if name == "note-body":
            self._flow = self._body
        elif name in _LINES and self._cells and self._flow is self._body:
            self._flow.space()
        elif name in _LINES and not self._skipping:
            self._flow.line_end()
        elif name in _CELLS:
            self._flow.cell()
        elif name == "table-row":
            self._flow.line()

    def data(self, data: str) -> None:
        """White space collapses, as the format has it."""
        if self._skipping or not self._in_text:
            return
        text = _SPACE.sub(" ", data)
        if text.startswith(" "):
            self._flow.space()
        self._flow.text(text.strip(" "))
        if text.endswith(" "):
            self._flow.space()


def _local(tag: str) -> str:
    """The name of an element of OpenDocument; "" for elements of other vocabularies."""
    namespace, _, name = tag.rpartition("}")
    return name if namespace.startswith(_VOCABULARY) else ""


def read_odt(source: Source) -> Iterator[str]:
    """Paragraphs and tables in document order, then footnotes and endnotes. Headers, footers, comments and what a tracked
    change took away are left out."""
    with Archive(source) as archive:
        if _MANIFEST in archive.names and b"encryption-data" in archive.read(_MANIFEST):
            raise source.error("encrypted ODT file", "Open it with its password and save it without one")
        package = Package(source, archive, "ODT")
        flow, notes = Flow(), Flow()
        yield from package.text(_CONTENT, flow, _Target(flow, notes, source))
        if kept := notes.take():
            yield ("\n" if flow.started else "") + kept
