"""`memagent ask` and `memagent resume`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from memagent.api import document_encoding, document_paths
from memagent.cli import interrupts
from memagent.cli.console import MODEL, NOT_FOUND, boundary, note, print_json
from memagent.cli.estimate import print_estimate
from memagent.cli.hints import Hint
from memagent.cli.options import (
    AsJson,
    BaseUrl,
    Chosen,
    Concurrency,
    NoVerify,
    Paths,
    Price,
    Timeout,
    TrustUsage,
    Verbose,
    absolute,
    all_questions,
    opened_model,
    reads,
    server_again,
)
from memagent.cli.progress import shown
from memagent.cli.show import print_left_out, print_readings
from memagent.documents import Document, load
from memagent.journal import Journal
from memagent.result import Reading
from memagent.session import Progress, Session
from memagent.settings import Settings


@reads
def ask(
    paths: Paths,
    chosen: Chosen,
    question: Annotated[
        list[str] | None, typer.Option("--question", "-q", help="The question. Repeat for several.")
    ] = None,
    questions: Annotated[
        Path | None, typer.Option(help="A file with one question per line; # starts a comment line.")
    ] = None,
    direct: Annotated[bool, typer.Option("--direct", help="The same as --reader direct.")] = False,
    together: Annotated[
        bool, typer.Option("--together", help="Answer all questions in one reading, with one memory for all of them.")
    ] = False,
    encoding: Annotated[str | None, typer.Option(help="Encoding of text files, if detection is wrong.")] = None,
    as_json: AsJson = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Estimate calls, tokens, time and cost without calling the model.")
    ] = False,
    price_in: Price = None,
    price_out: Price = None,
    no_journal: Annotated[bool, typer.Option("--no-journal", help="Save nothing; the reading cannot be resumed.")] = False,
    no_verify: NoVerify = False,
    verbose: Verbose = False,
) -> None:
    """Read documents with a small window and answer from the memory alone."""
    with boundary() as hints, ExitStack() as stack:
        asked = all_questions(question, questions)
        document = _load(stack, paths, encoding, as_json)
        opened = chosen.opened(stack)
        settings = chosen.settings(opened, **({"reader": "direct"} if direct else {}))
        journal = None if no_journal or dry_run else stack.enter_context(Journal.open())
        session = Session(
            document,
            opened,
            settings,
            journal,
            paths=[absolute(path) for path in paths],
            encoding=encoding,
            verified=not no_verify,
        )
        if together:
            asked = session.together(asked)
        if dry_run:
            print_estimate(session, asked, price_in, price_out, as_json)
        else:
            hint = Hint(paths=["PATH"] if "-" in paths else [], base_url=chosen.base_url)
            readings = _start(session, asked, hint, hints)
            _report(session, _run(session, readings, verbose), as_json, hint, verbose)


def resume(
    reading: Annotated[str, typer.Argument(metavar="ID", help="The id of a reading, or its beginning.")],
    paths: Annotated[list[str] | None, typer.Argument(metavar="[PATH...]", help="The new path of the document.")] = None,
    base_url: BaseUrl = None,
    tokenizer: Annotated[str | None, typer.Option(help="The new path of the tokenizer.json that counts tokens.")] = None,
    concurrency: Concurrency = 8,
    timeout: Timeout = 600.0,
    trust_usage: TrustUsage = None,
    as_json: AsJson = False,
    no_verify: NoVerify = False,
    verbose: Verbose = False,
) -> None:
    """Continue a reading that was interrupted or failed, without repeating finished turns."""
    with boundary() as hints, ExitStack() as stack:
        journal = stack.enter_context(Journal.open())
        record = journal.resumable(reading)
        moved = absolute(tokenizer) if tokenizer else None
        hint = Hint(paths=[absolute(path) for path in paths or []], tokenizer=moved, base_url=base_url)
        hints.append(hint.line(record.id))
        settings = Settings.from_json(record.settings)
        document = _load(stack, paths or document_paths(record), document_encoding(record), as_json)
        opened = opened_model(
            stack,
            settings.model,
            trust_usage,
            base_url=server_again(settings.base_url, base_url),
            concurrency=concurrency,
            timeout=timeout,
            window=settings.window,
            tokenizer=tokenizer or settings.tokenizer,
        )
        # A moved tokenizer may be another file; the session checks that it gives the same plan.
        session = Session(document, opened, settings.reopened(opened), journal, verified=not no_verify)
        _report(session, _run(session, [session.resume(record.id)], verbose), as_json, hint, verbose)


def _load(stack: ExitStack, paths: list[str], encoding: str | None, as_json: bool) -> Document:
    document = stack.enter_context(load(paths, encoding=encoding))
    interrupts.check()
    if not as_json:
        print_left_out(document)
    return document


def _start(session: Session, asked: list[str], hint: Hint, hints: list[str]) -> list[Progress]:
    """Adds the readings to the journal, and how to resume them to `hints`; an interrupt prevents both."""
    for question in asked:
        session.plan(question)  # this splits the document, which takes time; the next steps do not
        interrupts.check()
    if session.choice is not None:
        note(f"reader {session.choice.reader}: {session.choice.reason}")
    with interrupts.held():
        readings = session.start(asked)
        hints += dict.fromkeys(hint.line(reading.id) for reading in readings)
    return readings


def _run(session: Session, readings: list[Progress], verbose: bool) -> list[Reading]:
    """Runs readings with progress."""
    interrupts.check()
    with shown(readings, verbose) as watcher:
        results = session.run(readings, watcher)
    interrupts.check()
    return results


def _report(session: Session, results: list[Reading], as_json: bool, hint: Hint, verbose: bool) -> None:
    if as_json:
        objects = [result.to_json() for result in results]
        print_json(objects[0] if len(objects) == 1 else {"readings": objects})
    else:
        print_readings(session, results, hint, verbose)
    sys.stdout.flush()
    if any(result.error is not None for result in results):
        raise typer.Exit(MODEL)
    if results and all(result.status == "not_found" for result in results):
        raise typer.Exit(NOT_FOUND)
