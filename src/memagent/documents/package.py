"""Office files are zip packages of XML parts: the text of a part as events, and the parts that it names.

No tree of a part with text is built, no entity is expanded, and nothing is fetched.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memagent.documents.archive import Archive
from memagent.documents.flow import Flow, parse
from memagent.documents.source import Source, optional

_RESAVE = "Open it in an office program and save it again"


class Target:
    """Receives the parser's events and writes text into a flow. A format adds `start` and `end`.

    While `_skipping` is above 0, text is left out; `_in_text` says whether character data is text at all. `_cells` counts
    the cells of tables that are open.
    """

    def __init__(self, flow: Flow, source: Source) -> None:
        self._flow = flow
        self._source = source
        self._skipping = 0
        self._in_text = 0
        self._cells = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """An element begins."""
        raise NotImplementedError

    def end(self, tag: str) -> None:
        """An element ends."""
        raise NotImplementedError

    def data(self, data: str) -> None:
        """Characters between tags."""
        if self._in_text and not self._skipping:
            self._flow.text(data)

    def ended(self, name: str) -> None:
        """Ends what is of a name in Office Open XML: a paragraph (p) is a line, or a part of one in the cell (tc) of a
        table, whose rows (tr) are lines with tabs between their cells."""
        if name == "p" and self._cells:
            self._flow.space()
        elif name == "p":
            self._flow.line_end()
        elif name == "tc":
            self._flow.cell()
        elif name == "tr":
            self._flow.line()

    def doctype(self, _name: str, _public: str | None, _system: str | None) -> None:
        """Refused: the parts of office files have no document type, so this one is made to do harm."""
        raise self._source.error("its XML declares entities, which no office program does", "Do not trust this file")

    def close(self) -> None:
        """Nothing is left to do: the text went to the flow."""


@dataclass(frozen=True, slots=True)
class Package:
    """An opened package of a `kind` that people know ("DOCX"). Its methods raise DocumentError naming the file."""

    source: Source
    archive: Archive
    kind: str

    def text(self, part: str, flow: Flow, target: Target) -> Iterator[str]:
        """The text of a part, piece by piece, that a target writes into a flow."""
        etree = self._etree
        parser = etree.XMLParser(target=target, resolve_entities=False, no_network=True)
        try:
            yield from parse(parser, flow, self.archive.chunks(part))
        except etree.XMLSyntaxError as error:
            raise self.damaged(f"{part}: {error}") from error

    def tree(self, part: str) -> Any:
        """The root of a small part."""
        etree = self._etree
        try:
            return etree.fromstring(self.archive.read(part), etree.XMLParser(resolve_entities=False, no_network=True))
        except etree.XMLSyntaxError as error:
            raise self.damaged(f"{part}: {error}") from error

    def relations(self, part: str = "") -> dict[str, tuple[str, str]]:
        """By their id, the kind (`officeDocument`, `notesSlide` …) and the name of each part that one of Office Open XML
        names; of the package itself if none is given. What it names outside the package is left out."""
        folder, name = posixpath.split(part)
        listed = posixpath.join(folder, "_rels", f"{name}.rels")
        if listed not in self.archive.names:
            return {}
        found = {}
        for one in self.tree(listed):
            kind = str(one.get("Type", "")).rpartition("/")[2]
            target = posixpath.normpath(posixpath.join("/", folder, str(one.get("Target", ""))))
            if one.get("TargetMode") != "External":
                found[str(one.get("Id", ""))] = kind, target.lstrip("/")
        return found

    def main(self, usual: str) -> str:
        """The part of Office Open XML that holds the document: usually, but not always, `usual`."""
        return next((name for kind, name in self.relations().values() if kind == "officeDocument"), usual)

    @property
    def _etree(self) -> Any:
        return optional("lxml.etree", f"reading {self.kind} files")

    def damaged(self, detail: str) -> Exception:
        """The error to raise for what is not as it should be."""
        return self.source.error(f"damaged {self.kind}: {detail}", _RESAVE)
