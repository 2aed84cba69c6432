"""DOCX → text, straight from its XML as a stream.

Not through python-docx, which leaves out content controls and tracked insertions, repeats merged cells, and loads every
picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memagent.documents.archive import Archive
from memagent.documents.flow import Flow, parse
from memagent.documents.source import Source, optional

_FEATURE = "reading DOCX files"
_WORD = (
    "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}",
    "{http://purl.oclc.org/ooxml/wordprocessingml/main}",
)
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_SKIPPED = frozenset({"pPr", "rPr", "tblPr", "tblGrid", "trPr", "tcPr", "sectPr", "sdtPr", "del", "moveFrom"})
"""Properties (their <tab> is a tab stop), and text that a tracked change took away."""


class _Target:
    """Receives the parser's events. A paragraph is a line; a table row is a line with tabs between its cells."""

    def __init__(self, flow: Flow, source: Source) -> None:
        self._flow = flow
        self._source = source
        self._skipping = 0
        self._cells = 0
        self._in_text = False

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
        if name == "p" and self._cells:
            self._flow.space()
        elif name == "p":
            self._flow.line_end()
        elif name == "tc":
            self._flow.cell()
        elif name == "tr":
            self._flow.line()

    def data(self, data: str) -> None:
        if self._in_text and not self._skipping:
            self._flow.text(data)

    def doctype(self, _name: str, _public: str | None, _system: str | None) -> None:
        raise self._source.error("its XML declares entities, which no Word file does", "Do not trust this file")

    def close(self) -> None:
        """Nothing is left to do: the text went to the flow."""


def _local(tag: str) -> str:
    """The name of a Word element; "" for elements of other vocabularies."""
    namespace, _, name = tag.rpartition("}")
    return name if namespace + "}" in _WORD else ""


def read_docx(source: Source) -> Iterator[str]:
    """Paragraphs and tables in document order, then footnotes and endnotes. Headers, footers and comments are left out."""
    etree = optional("lxml.etree", _FEATURE)
    with Archive(source) as archive:
        main = _main_part(etree, archive, source)
        folder = main.rpartition("/")[0] + "/"
        notes = [part for part in (folder + "footnotes.xml", folder + "endnotes.xml") if part in archive.names]
        flow = Flow()
        for part in (main, *notes):
            parser = etree.XMLParser(target=_Target(flow, source), resolve_entities=False, no_network=True)
            try:
                yield from parse(parser, flow, archive.chunks(part))
            except etree.XMLSyntaxError as error:
                raise source.error(
                    f"damaged DOCX: {part}: {error}", "Open it in a word processor and save it again"
                ) from error


def _main_part(etree: Any, archive: Archive, source: Source) -> str:
    """The member that holds the text: usually, but not always, word/document.xml."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    try:
        relations = etree.fromstring(archive.read("_rels/.rels"), parser)
    except etree.XMLSyntaxError as error:
        raise source.error(f"damaged DOCX: {error}", "Open it in a word processor and save it again") from error
    for relation in relations:
        if str(relation.get("Type", "")).endswith("/officeDocument"):
            return str(relation.get("Target", "")).lstrip("/")
    return "word/document.xml"
