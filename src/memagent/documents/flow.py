"""Runs of text → lines: what HTML, EPUB and office files have in common once their tags are gone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_SPACE = re.compile(r"[ \t\n\r\f]+")  # not \s: a no-break space is text


class Flow:
    """Joins runs of text with the widest of the gaps asked for between them; no gap at the very start or end.

    Gaps rank: a space, tabs (one for each table cell that ended), a line end, a blank line.
    """

    def __init__(self) -> None:
        self._runs: list[str] = []
        self._gap = ""
        self.started = False
        """Whether there was any text yet."""

    def text(self, run: str) -> None:
        """Text to be kept as it is."""
        if not run:
            return
        if self.started:
            self._runs.append(self._gap)
        self._runs.append(run)
        self._gap = ""
        self.started = True

    def words(self, run: str) -> None:
        """Text whose white space collapses, as that of HTML and OpenDocument does."""
        text = _SPACE.sub(" ", run)
        if text.startswith(" "):
            self.space()
        self.text(text.strip(" "))
        if text.endswith(" "):
            self.space()

    def space(self) -> None:
        """White space that may be swallowed by a wider gap."""
        self._gap = self._gap or " "

    def cell(self) -> None:
        """The end of a table cell. Empty cells count, so that columns keep their places."""
        self._gap = self._gap.rstrip(" ") + "\t"

    def line(self) -> None:
        """The following text starts a line."""
        self._gap = "\n\n" if self._gap.startswith("\n\n") else "\n"

    def line_end(self) -> None:
        """A line ends here, even an empty one; more than one empty line in a row counts as one."""
        self._gap = "\n\n" if self._gap.startswith("\n") else "\n"

    def paragraph(self) -> None:
        """The following text starts after a blank line."""
        self._gap = "\n\n"

    def take(self) -> str:
        """The text since the last call."""
        text = "".join(self._runs)
        self._runs.clear()
        return text


def parse(parser: Any, flow: Flow, chunks: Iterable[bytes]) -> Iterator[str]:
    """Feeds an lxml parser whose target writes into `flow`; gives the text as it comes, so nothing piles up in memory."""
    for chunk in chunks:
        parser.feed(chunk)
        if text := flow.take():
            yield text
    parser.close()
    if text := flow.take():
        yield text
