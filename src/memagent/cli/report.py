"""`memagent report`: runs compared, as a page and as tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from memagent.cli.console import boundary, clean, err, plain
from memagent.errors import ConfigError


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders; the others are compared with the first.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="An HTML file. A report that is there is replaced.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="A Markdown file of the tables; without -o they are printed if it is not given.")
    ] = None,
    scorer: Annotated[str, typer.Option(help="strict, contains, f1, all_required, ruler or released.")] = "strict",
    readings: Annotated[int, typer.Option(min=0, help="Single readings to show, half of them right, half not.")] = 10,
    sample: Annotated[
        list[str] | None, typer.Option(help="Show the readings of this sample instead. May be repeated.")
    ] = None,
    samples: Annotated[
        list[Path] | None, typer.Option(help="The sample file of a run, if it has moved. May be repeated.")
    ] = None,
    title: Annotated[str, typer.Option(help="The heading.")] = "Reading with a memory: results",
) -> None:
    """Compare runs of memagent eval: accuracy, time, what became of the facts, and single readings turn by turn."""
    with boundary():
        from memagent.evaluation.report import gather, write_report
        from memagent.evaluation.report import markdown as tables

        if output is not None and markdown is not None and output.resolve() == markdown.resolve():
            raise ConfigError(f"{output} cannot be both the page and the tables: give two names")
        findings = gather(runs, scorer)
        if output is None and markdown is None:
            sys.stdout.write(clean(tables(findings, title)))
            return
        write_report(
            findings,
            title=title,
            html=output,
            tables=markdown,
            readings=readings,
            samples=sample or (),
            files=samples or (),
        )
        for path in filter(None, (output, markdown)):
            size = path.stat().st_size / 1024
            err.print(
                plain(f"{path}: {len(findings.places):,} readings of {len(runs)} runs, {size:,.0f} KB"), soft_wrap=True
            )
