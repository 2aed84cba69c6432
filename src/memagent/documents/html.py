"""HTML → text, from the events of the parser: a tree of the page, many times its size, is never built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from memagent.documents.flow import Flow, parse
from memagent.documents.source import Source, optional

_SKIPPED = frozenset({"head", "script", "style", "template", "noscript"})
_PARAGRAPHS = frozenset(
    {"address", "article", "aside", "blockquote", "dl", "fieldset", "figure", "footer", "form", "h1", "h2", "h3", "h4"}
    | {"h5", "h6", "header", "hr", "main", "nav", "p", "pre", "section", "table"}
)
_LINES = frozenset(
    {"body", "caption", "dd", "details", "div", "dt", "figcaption", "legend", "li", "ol", "option", "summary", "tbody"}
    | {"thead", "tr", "ul"}
)
_CELLS = frozenset({"td", "th"})


class _Target:
    """Receives the parser's events: block elements end lines, white space collapses outside <pre>."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._skipping = 0
        self._preformatted = 0

    def start(self, tag: str, _attributes: Mapping[str, str]) -> None:
        self._skipping += tag in _SKIPPED
        self._preformatted += tag == "pre"
        if tag == "br":
            self._flow.line_end()
        self._block(tag)

    def end(self, tag: str) -> None:
        self._skipping -= tag in _SKIPPED
        self._preformatted -= tag == "pre"
        if tag in _CELLS:
            self._flow.cell()
        self._block(tag)

    def _block(self, tag: str) -> None:
        if tag in _PARAGRAPHS:
            self._flow.paragraph()
        elif tag in _LINES:
            self._flow.line()

    def data(self, data: str) -> None:
        if self._skipping:
            return
        if self._preformatted:
            self._flow.text(data)
        else:
            self._flow.words(data)

    def comment(self, _text: str) -> None:
        """Comments are not text."""

    def pi(self, _target: str, _data: str | None = None) -> None:
        """Nor are processing instructions."""

    def close(self) -> None:
        """Nothing is left to do: the text went to the flow."""


def html_text(source: Source, pieces: Iterable[str], feature: str = "reading HTML files") -> Iterator[str]:
    """The text of HTML markup, piece by piece. Broken markup is read as browsers do; nothing is fetched.

    Offsets into an HTML document count characters of this text, not of the markup. The parser keeps the markup in memory
    until its end (one byte a byte), though no tree of it.
    """
    etree = optional("lxml.etree", feature)
    flow = Flow()
    # The encoding is forced because a charset declared inside belongs to the bytes before they were decoded.
    parser = etree.HTMLParser(target=_Target(flow), encoding="utf-8", huge_tree=True, no_network=True)
    try:
        yield from parse(parser, flow, (piece.encode() for piece in pieces))
    except etree.XMLSyntaxError as error:
        if flow.started:  # otherwise it says that there is no element at all, as in a page of comments
            raise source.error(f"damaged HTML: {error}", "Save the page again from a browser") from error
