"""ODT → text, straight from its XML as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memagent.documents.archive import MAX_MEMBER, Archive
from memagent.documents.flow import Flow
from memagent.documents.package import Package, Target
from memagent.documents.source import Source

_CONTENT, _MANIFEST = "content.xml", "META-INF/manifest.xml"
_VOCABULARY = "{urn:oasis:names:tc:opendocument:xmlns:"
_COUNT = f"{_VOCABULARY}text:1.0}}c"
_SKIPPED = frozenset(
    {"text:tracked-changes", "office:annotation", "text:note-citation", "text:ruby-text", "office:forms", "svg:title"}
    | {"svg:desc", "table:title", "table:desc", "office:binary-data"}
)
"""Text that a tracked change took away, comments, the marks of notes, and pictures with their descriptions."""
_LINES = frozenset({"text:p", "text:h"})
_CELLS = frozenset({"table:table-cell", "table:covered-table-cell"})
_MOST_SPACES = 20  # that a mark for spaces stands for: more are there to fill a disk


class _Target(Target):
    """A paragraph is a line; a table row is a line with tabs between its cells. Notes are kept for the end."""

    def __init__(self, flow: Flow, notes: Flow, source: Source) -> None:
        super().__init__(flow, source)
        self._body, self._notes = flow, notes

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = _name(tag)
        self._skipping += name in _SKIPPED
        self._cells += name in _CELLS
        self._in_text += name in _LINES
        if name == "text:note-body":
            self._flow = self._notes
        elif self._skipping or not self._in_text:
            return
        elif name == "text:tab":
            self._flow.text("\t")
        elif name == "text:line-break":
            self._flow.line_end()
        elif name == "text:s":
            count = attributes.get(_COUNT, "1")[:6]
            self._flow.text(" " * min(int(count) if count.isdecimal() else 1, _MOST_SPACES))

    def end(self, tag: str) -> None:
        name = _name(tag)
        self._skipping -= name in _SKIPPED
        self._cells -= name in _CELLS
        self._in_text -= name in _LINES
        if name == "text:note-body":
            self._flow = self._body
        elif self._skipping:
            return
        elif name in _LINES and self._cells and self._flow is self._body:
            self._flow.space()
        elif name in _LINES:
            self._flow.line_end()
        elif name in _CELLS:
            self._flow.cell()
        elif name == "table:table-row":
            self._flow.line()

    def data(self, data: str) -> None:
        """White space collapses, as the format has it."""
        if self._in_text and not self._skipping:
            self._flow.words(data)


def _name(tag: str) -> str:
    """The name of an element of OpenDocument, as "text:p"; "" for elements of other vocabularies."""
    namespace, _, name = tag.rpartition("}")
    if not namespace.startswith(_VOCABULARY):
        return ""
    return f"{namespace.removeprefix(_VOCABULARY).partition(':')[0].removesuffix('-compatible')}:{name}"


def read_odt(source: Source) -> Iterator[str]:
    """Paragraphs and tables in document order, then footnotes and endnotes. Headers, footers, comments and what a tracked
    change took away are left out."""
    with Archive(source) as archive:
        if _MANIFEST in archive.names and b"encryption-data" in archive.read(_MANIFEST):
            raise source.error("encrypted ODT file", "Open it with its password and save it without one")
        package = Package(source, archive, "ODT")
        flow, notes = Flow(), Flow()
        yield from package.text(_CONTENT, flow, _Target(flow, notes, source))
        kept = notes.take()
        if len(kept) > MAX_MEMBER:
            raise source.error(f"notes of more than {MAX_MEMBER >> 20} million characters", "Save it as text")
        if kept:
            yield ("\n" if flow.started else "") + kept
