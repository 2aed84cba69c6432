"""All commands of `memagent`."""

from __future__ import annotations

from typing import Annotated

import typer

from memagent import __version__
from memagent.cli import (
    again,
    ask,
    batch,
    compare,
    doctor,
    eval,
    importing,
    mcp_serve,
    profiles,
    readers,
    readings,
    report,
    serve,
    shorten,
    tasks,
    train,
    watch,
)
from memagent.cli.console import run_app
from memagent.cli.streams import prepare_streams

app = typer.Typer(
    name="memagent",
    help="Read a document of any length with a small window and a memory that is overwritten.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("ask")(ask.ask)
app.command("resume")(again.resume)
app.command("extend")(again.extend)
app.command("readers")(readers.readers)
app.command("batch")(batch.batch)
app.command("tasks")(tasks.tasks)
app.command("synth")(tasks.synth)
app.command("import")(importing.import_file)
app.command("validate")(tasks.validate)
app.command("serve")(serve.serve)
app.command("serve-key")(serve.serve_key)
app.command("mcp")(mcp_serve.mcp)
app.command("doctor")(doctor.doctor)
app.command("compare")(compare.compare)
app.command("eval")(eval.evaluate)
app.command("report")(report.report)
app.command("shorten")(shorten.shorten)
app.add_typer(train.app, name="train")
app.add_typer(readings.app, name="readings")
app.add_typer(watch.app, name="watch")
app.add_typer(profiles.app, name="profile")


def run() -> None:
    """Runs the command line of this process."""
    prepare_streams()
    run_app(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"memagent {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Exit codes: 0 answered · 1 not in the document · 2 usage · 3 document · 4 model · 5 output or journal not written ·
    70 an error in memagent · 130 interrupted."""
