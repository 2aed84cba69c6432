"""The records of a run, for a benchmark that is a command."""

from __future__ import annotations

from pathlib import Path

import typer

from memagent.errors import MemagentError
from memagent.evaluation.records import Record
from memagent.evaluation.runs import Run


def records(folder: Path) -> list[Record]:
    """Raises typer.BadParameter, which a command prints without a traceback, for a folder that is no run."""
    try:
        return [placed.record for placed in Run.open(folder).records()]
    except MemagentError as error:
        raise typer.BadParameter(str(error)) from error
