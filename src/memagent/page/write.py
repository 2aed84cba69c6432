"""The page of a reading as HTML, and as a file: whole or not at all."""

from __future__ import annotations

from pathlib import Path

from memagent.files import atomic_file
from memagent.journal import Journal, ReadingRecord
from memagent.page.gather import page_of
from memagent.page.render import html
from memagent.page.view import PageView


def page_text(journal: Journal, record: ReadingRecord) -> tuple[PageView, str]:
    """The page of a reading, and its HTML. Raises JournalError."""
    page = page_of(journal, record)
    return page, html(page)


def write_page(journal: Journal, record: ReadingRecord, path: Path) -> PageView:
    """Writes the page of a reading, in place of a file that is there, and returns what it says.

    Raises JournalError or OutputError.
    """
    page, text = page_text(journal, record)
    with atomic_file(path) as file:
        file.write(text)
    return page
