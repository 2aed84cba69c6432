"""`memagent report`: compares runs on a page and in tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from memagent.cli.console import boundary, err, plain
from memagent.errors import ConfigError
from memagent.harmful import clean

Watch = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="For training runs: rewrite the page at this interval until they finish; default file: in the first folder.",
    ),
]
Scorer = Annotated[
    str,
    typer.Option(help="own (of each sample; otherwise strict), strict, contains, f1, all_required, ruler or released."),
]
_EVALUATION_ONLY = ("scorer", "readings", "sample", "samples")
_PAGE_ONLY = ("readings", "sample", "samples")


def report(
    context: typer.Context,
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Run folders of `memagent eval` or of training. The first run is the baseline."
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The HTML file to write. An existing report is overwritten.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="The Markdown file for the tables. Without this and -o, the tables are printed.")
    ] = None,
    scorer: Scorer = "own",
    readings: Annotated[int, typer.Option(min=0, help="Number of single readings to show: half right, half wrong.")] = 10,
    sample: Annotated[
        list[str] | None, typer.Option(help="Show the readings of this sample instead. Repeat for several.")
    ] = None,
    samples: Annotated[
        list[Path] | None, typer.Option(help="The sample file of a run, if it has moved. Repeat for several.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="The title of the report.")] = None,
    watch: Watch = None,
) -> None:
    """Compare runs of `memagent eval`: accuracy, time, retention of facts, and single readings turn by turn.

    For training runs, draw curves of all logged values, such as reward, accuracy and loss, with one line per run.
    """
    with boundary():
        from memagent.evaluation.report import gather, write_report
        from memagent.evaluation.report import markdown as tables
        from memagent.evaluation.report.training import all_training_runs

        if output is not None and markdown is not None and output.resolve() == markdown.resolve():
            raise ConfigError(f"{output} cannot be both the page and the tables: choose two names")
        if all_training_runs(runs):
            if given := _given(context, _EVALUATION_ONLY):
                raise ConfigError(f"--{given} is for runs of memagent eval, but these are training runs: omit it")
            _report_training(runs, output, markdown, title or "Training", watch)
            return
        _check_evaluation(context, output, watch)
        title = title or "Reading with a memory: results"
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
        _say_written(output, markdown, f"{len(findings.places):,} readings of {len(runs)} runs")


def _check_evaluation(context: typer.Context, output: Path | None, watch: float | None) -> None:
    """Raises ConfigError for options that have no use for runs of `memagent eval`, or none without a page."""
    if watch is not None:
        raise ConfigError(
            "--watch is for training runs only: repeat the report of a run of memagent eval when the run has progressed"
        )
    if output is None and (given := _given(context, _PAGE_ONLY)):
        raise ConfigError(f"--{given} is about the page: name its file with -o")


def _given(context: typer.Context, names: Sequence[str]) -> str | None:
    """The first of these options that the command line has."""
    sources = {name: context.get_parameter_source(name) for name in names}
    return next((name for name, source in sources.items() if source is not None and source.name != "DEFAULT"), None)


def _report_training(runs: list[Path], output: Path | None, markdown: Path | None, title: str, watch: float | None) -> None:
    from memagent.evaluation.report.curves import markdown as tables
    from memagent.evaluation.report.training import read_training_runs
    from memagent.evaluation.report.training_page import watch_training, write_training_report

    if watch is not None:
        if markdown is not None:
            raise ConfigError("--watch writes only the page: omit --markdown")
        page = output or runs[0] / "report.html"
        watch_training(runs, title=title, html=page, seconds=watch, say=lambda text: err.print(plain(text), soft_wrap=True))
        return
    found = read_training_runs(runs)
    if output is None and markdown is None:
        sys.stdout.write(clean(tables(found, title)))
        return
    write_training_report(found, title=title, html=output, tables=markdown)
    _say_written(output, markdown, f"the curves of {', '.join(run.name for run in found)}")


def _say_written(output: Path | None, markdown: Path | None, what: str) -> None:
    for path in filter(None, (output, markdown)):
        err.print(plain(f"{path}: {what}, {path.stat().st_size / 1024:,.0f} KB"), soft_wrap=True)
