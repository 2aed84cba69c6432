"""A report on disk: whole or not at all, and never over a file that is no report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memagent.evaluation.report.findings import Findings
from memagent.evaluation.report.page import GENERATOR, html_page
from memagent.evaluation.report.readings import ReadingView, view
from memagent.evaluation.report.selection import Documents, choose
from memagent.evaluation.report.tables import MARK, markdown
from memagent.files import atomic_file, check_replaceable
from memagent.tasks.files import SampleFile


def write_report(
    findings: Findings,
    *,
    title: str,
    html: Path | None = None,
    tables: Path | None = None,
    readings: int = 10,
    samples: Sequence[str] = (),
    files: Sequence[Path] = (),
) -> None:
    """Writes the page, the tables in Markdown, or both. Overwrites a report; raises OutputError for any other file.

    `readings` single readings are shown, or all those of `samples` (ids); `files` are sample files that have moved.
    """
    for path in (html, tables):
        if path is not None:
            check_report(path)
    if html is not None:
        text = html_page(findings, title, views(findings, readings, samples, files))
        with atomic_file(html) as file:
            file.write(text)
    if tables is not None:
        with atomic_file(tables) as file:
            file.write(markdown(findings, title))


def views(findings: Findings, readings: int, samples: Sequence[str], files: Sequence[Path]) -> list[ReadingView]:
    """The single readings of a report."""
    documents = Documents(files)
    found = []
    for place in choose(findings, readings, samples):
        run = findings.parts[place.run].run
        file = documents.of(run)
        sample = file.load(place.sample) if isinstance(file, SampleFile) else None
        missing = file if isinstance(file, str) else None
        found.append(view(run.load(place.place, place.size), place.row, sample, missing))
    documents.check_used()
    return found


def check_report(path: Path) -> None:
    """Raises OutputError if something other than a report is at `path`."""
    check_replaceable(path, "a report", (GENERATOR, MARK))
