"""DOCX → text, straight from its XML as a stream.

Not through python-docx, which leaves out content controls and tracked insertions, repeats merged cells, and loads every
picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memagent.documents.archive import Archive
from memagent.documents.flow import Flow
from memagent.documents.package import Package, Target
from memagent.documents.source import Source

_WORD = (
    "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}",
    "{http://purl.oclc.org/ooxml/wordprocessingml/main}",
)
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_SKIPPED = frozenset({"pPr", "rPr", "tblPr", "tblGrid", "trPr", "tcPr", "sectPr", "sdtPr", "del", "moveFrom"})
"""Properties (their <tab> is a tab stop), and text that a tracked change took away."""


class _Target(Target):
    def start(self, tag: str, _attributes: Mapping[str, str]) -> None:
        name = _local(tag)
        self._skipping += name in _SKIPPED or tag == _FALLBACK
        self._cells += name == "tc"
        if self._skipping:
            return
        self._in_text = name == "t"
        if name == "tab":
            self._flow.text("\t")
        elif name in ("br", "cr"):
            self._flow.line_end()
        elif name == "noBreakHyphen":
            self._flow.text("-")

    def end(self, tag: str) -> None:
        name = _local(tag)
        self._in_text = False
        self._skipping -= name in _SKIPPED or tag == _FALLBACK
        self._cells -= name == "tc"
        self.ended(name)


def _local(tag: str) -> str:
    """The name of a Word element; "" for elements of other vocabularies."""
    namespace, _, name = tag.rpartition("}")
    return name if namespace + "}" in _WORD else ""


def read_docx(source: Source) -> Iterator[str]:
    """Paragraphs and tables in document order, then footnotes and endnotes. Headers, footers and comments are left out."""
    with Archive(source) as archive:
        package = Package(source, archive, "DOCX")
        main = package.main("word/document.xml")
        folder = main.rpartition("/")[0] + "/"
        notes = [part for part in (folder + "footnotes.xml", folder + "endnotes.xml") if part in archive.names]
        flow = Flow()
        for part in (main, *notes):
            yield from package.text(part, flow, _Target(flow, source))
