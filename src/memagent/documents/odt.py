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
_ENDED = dict.fromkeys(_LINES, "p") | dict.fromkeys(_CELLS, "tc") | {"table:table-row": "tr"}
"""What ends as in Word."""
_MOST_SPACES = 20  # that a mark for spaces stands for: more are there to fill a disk


class _Target(Target):
    """Notes are kept for the end, where they stand outside of tables."""

    def __init__(self, flow: Flow, notes: Flow, source: Source) -> None:
        super().__init__(flow, source)
        self._left = notes, 0  # the other flow, and its open cells

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = _name(tag)
        self._skipping += name in _SKIPPED
        self._cells += name in _CELLS
        self._in_text += name in _LINES
        if name == "text:note-body":
            self._turn()
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
            self._turn()
        elif not self._skipping:
            self.ended(_ENDED.get(name, ""))

    def _turn(self) -> None:
        """Writes into the notes from here on, or again into the body."""
        (self._flow, self._cells), self._left = self._left, (self._flow, self._cells)

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
