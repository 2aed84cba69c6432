"""`memagent ask` and `memagent resume`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
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
from memagent.errors import ConfigError
from memagent.journal import Journal
from memagent.result import Reading
from memagent.session import Progress, Session, left_by
from memagent.settings import Settings, from_memory, reader_options


@reads
def ask(
    chosen: Chosen,
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH...]", help="Files, folders, globs, or - for standard input.")
    ] = None,
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
    earlier: Annotated[
        str | None, typer.Option("--from", metavar="ID", help="Answer from the memory of this earlier reading.")
    ] = None,
    reread: Annotated[
        bool, typer.Option("--reread", help="With --from: search the document for what the memory does not hold.")
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
        asked, paths = all_questions(question, questions), paths or []
        if earlier is not None:
            if direct or together or dry_run or no_journal or encoding or chosen.model != "embedded":
                raise ConfigError("--from goes on from a reading, with its model and document: give only questions with it")
            _follow_up(
                stack,
                earlier,
                paths,
                asked,
                chosen,
                hints,
                reread=reread,
                as_json=as_json,
                no_verify=no_verify,
                verbose=verbose,
            )
            return
        if not paths:
            raise ConfigError("no document given: name a file or folder, - for standard input, or --from with a reading")
        if reread:
            raise ConfigError("--reread goes with --from, whose memory may not hold the answer")
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


def _follow_up(
    stack: ExitStack,
    given: str,
    paths: list[str],
    asked: list[str],
    chosen: Chosen,
    hints: list[str],
    *,
    reread: bool,
    as_json: bool,
    no_verify: bool,
    verbose: bool,
) -> None:
    """Answers questions from the memory of an earlier reading; with `reread`, searches for what it does not hold."""
    journal = stack.enter_context(Journal.open())
    record = journal.resumable(given)
    hint = Hint(paths=[absolute(path) for path in paths], base_url=chosen.base_url)
    settings = Settings.from_json(record.settings)
    document = _load(stack, paths or document_paths(record), document_encoding(record), as_json)
    memory = left_by(journal, record, document)
    again = replace(
        chosen,
        model=settings.model,
        base_url=server_again(settings.base_url, chosen.base_url),
        window=settings.window,
        tokenizer=chosen.tokenizer or settings.tokenizer,
    )
    opened = again.opened(stack)
    settings = settings.reopened(opened)
    found_at = paths or document_paths(record)

    def session(settings: Settings) -> Session:
        located = {"paths": [absolute(path) for path in found_at], "encoding": document_encoding(record)}
        return Session(document, opened, settings, journal, verified=not no_verify, **located)  # type: ignore[arg-type]

    first = session(from_memory(settings, record.id, memory))
    results = _run(first, _start(first, asked, hint, hints), verbose)
    missing = [result.question for result in results if result.status == "not_found"]
    if missing and reread:
        note(f"the memory of {record.id} does not hold {len(missing)} of {len(asked)}: the document is searched for them")
        options = reader_options(opened, "search", None)
        searching = session(replace(settings, reader="search", reader_options=options, together=()))
        found = {one.question: one for one in _run(searching, _start(searching, missing, hint, hints), verbose)}
        results = [found.get(result.question, result) for result in results]
    elif missing:
        note(f"the memory of {record.id} does not hold it: with --reread, the document is searched")
    _report(first, results, as_json, hint, verbose)


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
