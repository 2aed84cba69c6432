"""PPTX → the text of its slides, in the order of the presentation, each with its speaker notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memagent.documents.archive import MAX_MEMBER, Archive
from memagent.documents.flow import Flow
from memagent.documents.package import Package, Target
from memagent.documents.source import Source

_DRAWING = (
    "{http://schemas.openxmlformats.org/drawingml/2006/main}",
    "{http://purl.oclc.org/ooxml/drawingml/main}",
)
_SLIDES = (
    "{http://schemas.openxmlformats.org/presentationml/2006/main}",
    "{http://purl.oclc.org/ooxml/presentationml/main}",
)
_RELATION = (
    "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id",
    "{http://purl.oclc.org/ooxml/officeDocument/relationships}id",
)
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_SHAPES = frozenset({"sp", "pic", "graphicFrame", "cxnSp"})
_REPEATED = frozenset({"sldNum", "dt", "ftr", "hdr"})
"""Placeholders that say the same on every slide: its number, the date, footer and header."""


class _Target(Target):
    """Shapes are apart by a blank line."""

    def __init__(self, flow: Flow, source: Source) -> None:
        super().__init__(flow, source)
        self._repeated = False  # within a shape of _REPEATED; shapes do not hold others, but groups do

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = _local(tag)
        self._skipping += tag == _FALLBACK
        self._cells += name == "tc"
        if name == "ph" and attributes.get("type") in _REPEATED:
            self._repeated = True
        self._in_text = name == "t" and not self._repeated
        if name == "br" and not (self._skipping or self._repeated):
            self._flow.line_end()
        elif name in _SHAPES:
            self._flow.paragraph()

    def end(self, tag: str) -> None:
        name = _local(tag)
        self._in_text = False
        self._skipping -= tag == _FALLBACK
        self._cells -= name == "tc"
        if name in _SHAPES:
            self._repeated = False
        self.ended(name)


def _local(tag: str) -> str:
    """The name of an element of a slide; "" for elements of other vocabularies."""
    namespace, _, name = tag.rpartition("}")
    return name if namespace + "}" in (*_DRAWING, *_SLIDES) else ""


def read_pptx(source: Source) -> Iterator[str]:
    """A piece for each slide, "" for one without text. Charts, diagrams (SmartArt), comments and masters are left out."""
    with Archive(source) as archive:
        package = Package(source, archive, "PPTX")
        for slide in _slides(package):
            notes = [part for kind, part in package.relations(slide).values() if kind == "notesSlide"]
            flow, pieces, size = Flow(), list[str](), 0
            for part in (slide, *notes):
                flow.paragraph()
                for piece in package.text(part, flow, _Target(flow, source)):
                    pieces.append(piece)
                    size += len(piece)
                    if size > MAX_MEMBER:
                        raise source.error(f"a slide of more than {MAX_MEMBER >> 20} million characters", "Save it as text")
            yield "".join([*pieces, "\n\n"]) if pieces else ""


def _slides(package: Package) -> list[str]:
    """The parts of the slides in the order in which they are shown."""
    main = package.main("ppt/presentation.xml")
    parts = package.relations(main)
    listed = package.tree(main).xpath("//*[local-name()='sldIdLst']/*[local-name()='sldId']")
    ids = [next((one.get(name) for name in _RELATION if one.get(name)), "") for one in listed]
    if lost := [id for id in ids if id not in parts]:
        raise package.damaged(f"{main} names a slide {lost[0]!r}, which it does not hold")
    return [parts[id][1] for id in ids]
