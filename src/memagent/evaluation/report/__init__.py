"""`memagent report`: a single HTML file, and tables in Markdown, from runs.

    findings    one pass over the records: rows, tallies, places
    selection   which single readings are shown, and where their documents are
    readings    a single reading, turn by turn
    charts · numbers · text · tables · page    how it looks

Everything that comes from documents and models is data: the page escapes it, and allows no script but its own.
"""

from __future__ import annotations

from memagent.errors import MissingExtraError

try:
    import matplotlib
    import numpy
except ImportError as error:
    raise MissingExtraError("a report", "eval") from error

from memagent.evaluation.report.findings import Findings, gather
from memagent.evaluation.report.page import html_page
from memagent.evaluation.report.selection import Documents, choose
from memagent.evaluation.report.tables import markdown
from memagent.evaluation.report.write import write_report

__all__ = ["Documents", "Findings", "choose", "gather", "html_page", "markdown", "write_report"]

del matplotlib, numpy
