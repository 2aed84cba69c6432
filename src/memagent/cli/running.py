"""What the commands share that read: they load a document, run readings with progress, and print what came of them."""

from __future__ import annotations

import sys
from contextlib import ExitStack, nullcontext

import typer

from memagent.cli import interrupts
from memagent.cli.console import MODEL, NOT_FOUND, err, note, print_json
from memagent.cli.hints import Hint
from memagent.cli.progress import cutting, shown
from memagent.cli.show import print_guessed, print_left_out, print_readings
from memagent.documents import Document, load
from memagent.documents.document import Loading
from memagent.result import Reading
from memagent.session import Progress, Session


def load_document(stack: ExitStack, paths: list[str], loading: Loading, as_json: bool) -> Document:
    """The document; the stack closes it. Files that were left out are named."""
    typed = "-" in paths
    with nullcontext() if typed else err.status("reading files"):  # where it is a terminal
        document = stack.enter_context(load(paths, **loading))
    interrupts.check()
    if not as_json:
        print_left_out(document)
        print_guessed(document)
    return document


def start(session: Session, asked: list[str], hint: Hint, hints: list[str]) -> list[Progress]:
    """Adds the readings to the journal, and how to resume them to `hints`; an interrupt prevents both."""
    with cutting(session):  # which takes time; the next steps do not
        for _ in session.plans(asked):
            interrupts.check()
    if session.choice is not None:
        note(f"reader {session.choice.reader}: {session.choice.reason}")
    with interrupts.held():
        readings = session.start(asked)
        hints += dict.fromkeys(hint.line(reading.id) for reading in readings)
    return readings


def run(session: Session, readings: list[Progress], verbose: bool) -> list[Reading]:
    """Runs readings with progress."""
    interrupts.check()
    with shown(readings, verbose) as watcher:
        results = session.run(readings, watcher)
    interrupts.check()
    return results


def report(session: Session, results: list[Reading], as_json: bool, hint: Hint, verbose: bool) -> None:
    """Prints results. Ends with an exit code unless there is an answer."""
    if as_json:
        objects = [result.to_json() for result in results]
        print_json(objects[0] if len(objects) == 1 else {"readings": objects})
    else:
        print_readings(session, results, hint, verbose)
    sys.stdout.flush()
    scope = session.opened.defaults.scope
    if scope and any(result.status == "not_found" for result in results):
        note(f"{session.settings.model} answers only {scope}; for others, name a model with --model")
    if any(result.error is not None for result in results):
        raise typer.Exit(MODEL)
    if results and all(result.status == "not_found" for result in results):
        raise typer.Exit(NOT_FOUND)
