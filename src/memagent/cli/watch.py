"""`memagent watch`: standing questions about files that grow."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from glob import has_magic
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from memagent import watching
from memagent.cli.console import DOCUMENT, MODEL, boundary, err, exit_code, note, out, plain, print_json, warn, write
from memagent.cli.options import (
    AsJson,
    BaseUrl,
    Chosen,
    Concurrency,
    NoVerify,
    Timeout,
    all_questions,
    opened_model,
    reads,
    server_again,
)
from memagent.cli.progress import shown
from memagent.cli.show import print_verdict
from memagent.errors import MemagentError
from memagent.journal import Journal
from memagent.models.concurrency import AtOnce
from memagent.settings import Settings
from memagent.watching import Standing, Update

app = typer.Typer(help="Questions that are asked again as files are added.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a watch.")]


@app.command("add")
@reads
def add(
    name: Name,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files, folders or globs.")],
    chosen: Chosen,
    question: Annotated[list[str] | None, typer.Option("--question", "-q", help="A question. Repeat for several.")] = None,
    questions: Annotated[
        Path | None, typer.Option(help="A file with one question per line; # starts a comment line.")
    ] = None,
    encoding: Annotated[str | None, typer.Option(help="Encoding of text files, if detection is wrong.")] = None,
) -> None:
    """Add a watch. Nothing is read until `memagent watch run`."""
    with boundary(), ExitStack() as stack:
        asked = all_questions(question, questions)
        settings = chosen.settings(chosen.opened(stack))
        watching.add(name, paths, asked, settings, encoding)
        for path in paths:
            if not has_magic(path) and not Path(path).exists():
                warn(f"{path}: there is no such file or folder yet")
        note(f"read it with: memagent watch run {name}")


@app.command("run")
def run(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The name of a watch; without it, all of them.")
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Read everything afresh: what was edited or deleted is forgotten.")
    ] = False,
    base_url: BaseUrl = None,
    concurrency: Concurrency = 8,
    timeout: Timeout = 600.0,
    as_json: AsJson = False,
    no_verify: NoVerify = False,
) -> None:
    """Read what is new, and print the answers that changed."""
    with boundary(), ExitStack() as stack:
        journal = stack.enter_context(Journal.open())
        failed, updates, refused = False, list[Update](), list[MemagentError]()
        for one in [name] if name else watching.names():
            try:
                update = _run(one, journal, rebuild, not no_verify, base_url, concurrency, timeout)
            except MemagentError as error:  # the other watches are run all the same
                refused.append(error)
                if not name:
                    err.print(f"[bold red]memagent:[/] {plain(one)}: {plain(str(error))}", soft_wrap=True)
                continue
            failed = failed or any(reading.error is not None for reading in update.readings)
            updates.append(update)
            if not as_json:
                _print(update)
        if as_json:
            print_json([_json(update) for update in updates])
        elif not updates and not refused:
            note("there is no watch: memagent watch add NAME PATH... -q QUESTION")
        sys.stdout.flush()
        if refused and name:
            raise refused[0]
        if refused:  # they were told above
            raise typer.Exit(exit_code(refused[0]))
        if failed:
            raise typer.Exit(MODEL)
        if any(update.broken for update in updates):
            raise typer.Exit(DOCUMENT)


def _run(
    name: str, journal: Journal, rebuild: bool, verify: bool, base_url: str | None, concurrency: AtOnce, timeout: float
) -> Update:
    """One run of a watch, with its model."""
    with ExitStack() as stack:
        settings = Settings.from_json(watching.show(name).settings)
        opened = opened_model(
            stack,
            settings.model,
            None,
            base_url=server_again(settings.base_url, base_url),
            concurrency=concurrency,
            timeout=timeout,
            window=settings.window,
            tokenizer=settings.tokenizer,
        )
        progress = partial(shown, verbose=False)
        return watching.run(name, opened, journal, rebuild=rebuild, verify=verify, shown=progress)


@app.command("list")
def list_watches(as_json: AsJson = False) -> None:
    """List watches."""
    with boundary():
        watches = [watching.show(name) for name in watching.names()]
        if as_json:
            print_json([watch.to_json() for watch in watches])
            return
        table = Table(box=None, pad_edge=False)
        for column in ("name", "runs", "questions", "paths"):
            table.add_column(column)
        for watch in watches:
            table.add_row(watch.name, str(watch.runs), str(len(watch.questions)), plain(" ".join(watch.paths)))
        out.print(table)


@app.command("show")
def show(name: Name, as_json: AsJson = False) -> None:
    """Show the questions of a watch, with the last answers."""
    with boundary():
        watch = watching.show(name)
        if as_json:
            print_json(watch.to_json())
            return
        for one in watch.questions:
            _print_standing(one)


@app.command("remove")
def remove(name: Name) -> None:
    """Delete a watch and its copy of the text. Its readings stay in the journal."""
    with boundary():
        watching.remove(name)
        err.print(f"removed {name}")


def _print(update: Update) -> None:
    watch, changes = update.watch, update.changes
    files = [(changes.new, "new"), (changes.grown, "grown")]
    again = "what the run before could not read" if update.readings else "nothing new"
    told = ", ".join(f"{len(names):,} {what}" for names, what in files if names) or again
    failed = [reading for reading in update.readings if reading.error is not None]
    waits = f", {len(failed)} failed: the next run tries again" if failed else ""
    write((watch.name, "bold"), f": {told}, {len(update.changed)} of {len(watch.questions)} answers changed{waits}")
    for what, names in (("edited", watch.edited), ("deleted", watch.gone)):
        for name in names:
            write((f"  {what} since it was read: {name}; memagent watch run {watch.name} --rebuild reads afresh", "yellow"))
    for broken in update.broken:
        warn(f"not read, and tried again in the next run: {broken.reason}")
    for old, new in update.changed:
        _print_standing(new, old.answer)
    doubtful = [one for one in watch.questions if one.doubtful and one not in [new for _, new in update.changed]]
    for one in doubtful:
        _print_standing(one)
    for reading in failed:
        err.print(f"[bold red]memagent:[/] {plain(reading.question)}: {plain(reading.error or '')}", soft_wrap=True)


def _print_standing(one: Standing, before: str | None = None) -> None:
    write((one.question, "bold"))
    write((one.answer, "bold green") if one.answer else "no answer yet")
    if before is not None:
        write((f"  before: {before}", "dim"))
    if one.verdict is not None:
        print_verdict(one.verdict)
    for line in one.doubtful:
        write((f"  from a file that was edited or deleted: {line}", "yellow"))
    write()


def _json(update: Update) -> dict[str, Any]:
    changes = {name: list(getattr(update.changes, name)) for name in ("new", "grown", "edited", "deleted")}
    errors = {reading.question: reading.error for reading in update.readings if reading.error is not None}
    changed = [{"question": new.question, "before": old.answer, "after": new.answer} for old, new in update.changed]
    changes["broken"] = [one.path for one in update.broken]
    return {**update.watch.to_json(), "files": changes, "changed": changed, "errors": errors}
