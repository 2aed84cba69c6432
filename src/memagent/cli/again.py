"""`memagent resume`, `memagent extend` and `memagent ask --from`: go on from a reading in the journal."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from memagent.api import document_encoding, document_paths
from memagent.cli.console import boundary, note
from memagent.cli.hints import Hint
from memagent.cli.options import (
    AsJson,
    BaseUrl,
    Concurrency,
    NoVerify,
    Timeout,
    TrustUsage,
    Verbose,
    absolute,
    opened_model,
    server_again,
)
from memagent.cli.running import load_document, report, run, start
from memagent.journal import Journal, ReadingRecord
from memagent.session import Session, left_by
from memagent.settings import Settings, from_memory, reader_options

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a reading, or its beginning.")]
Moved = Annotated[str | None, typer.Option("--tokenizer", help="The new path of the tokenizer.json that counts tokens.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopening:
    """What a command line says of a reading that goes on: where things are now, and how to show what comes of it.

    `paths` is where the document is now, if it has moved, and `more` what is added to it.
    """

    paths: list[str]
    more: list[str]
    base_url: str | None
    tokenizer: str | None
    concurrency: int
    timeout: float
    trust_usage: bool | None
    as_json: bool
    verified: bool
    verbose: bool

    @property
    def hint(self) -> Hint:
        """How to resume what is interrupted now."""
        moved = absolute(self.tokenizer) if self.tokenizer else None
        return Hint(paths=[absolute(path) for path in self.paths], tokenizer=moved, base_url=self.base_url)

    def session(self, stack: ExitStack, journal: Journal, record: ReadingRecord) -> Session:
        """A session over the document and model of a reading, with its settings. The stack closes both."""
        settings, encoding = Settings.from_json(record.settings), document_encoding(record)
        paths = [*(self.paths or document_paths(record)), *self.more]
        document = load_document(stack, paths, encoding, self.as_json)
        opened = opened_model(
            stack,
            settings.model,
            self.trust_usage,
            base_url=server_again(settings.base_url, self.base_url),
            concurrency=self.concurrency,
            timeout=self.timeout,
            window=settings.window,
            tokenizer=self.tokenizer or settings.tokenizer,
        )
        located = [absolute(path) for path in paths]
        # A moved tokenizer may be another file; the session checks that it gives the same plan.
        again = settings.reopened(opened)
        return Session(document, opened, again, journal, paths=located, encoding=encoding, verified=self.verified)


def resume(
    reading: Id,
    paths: Annotated[list[str] | None, typer.Argument(metavar="[PATH...]", help="The new path of the document.")] = None,
    base_url: BaseUrl = None,
    tokenizer: Moved = None,
    concurrency: Concurrency = 8,
    timeout: Timeout = 600.0,
    trust_usage: TrustUsage = None,
    as_json: AsJson = False,
    no_verify: NoVerify = False,
    verbose: Verbose = False,
) -> None:
    """Continue a reading that was interrupted or failed, without repeating finished turns."""
    with boundary() as hints, ExitStack() as stack:
        again = Reopening(
            paths=paths or [],
            more=[],
            base_url=base_url,
            tokenizer=tokenizer,
            concurrency=concurrency,
            timeout=timeout,
            trust_usage=trust_usage,
            as_json=as_json,
            verified=not no_verify,
            verbose=verbose,
        )
        journal = stack.enter_context(Journal.open())
        record = journal.resumable(reading)
        hints.append(again.hint.line(record.id))
        session = again.session(stack, journal, record)
        report(session, run(session, [session.resume(record.id)], verbose), as_json, again.hint, verbose)


def extend(
    reading: Id,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[MORE...]", help="Files that were added to the document.")
    ] = None,
    base_url: BaseUrl = None,
    tokenizer: Moved = None,
    concurrency: Concurrency = 8,
    timeout: Timeout = 600.0,
    trust_usage: TrustUsage = None,
    as_json: AsJson = False,
    no_verify: NoVerify = False,
    verbose: Verbose = False,
) -> None:
    """Read on in a document that has grown: only what was added to its files, and MORE.

    The result is that of one reading of the grown document. It takes the place of the old one, under the same id.
    """
    with boundary() as hints, ExitStack() as stack:
        again = Reopening(
            paths=[],
            more=more or [],
            base_url=base_url,
            tokenizer=tokenizer,
            concurrency=concurrency,
            timeout=timeout,
            trust_usage=trust_usage,
            as_json=as_json,
            verified=not no_verify,
            verbose=verbose,
        )
        journal = stack.enter_context(Journal.open())
        record = journal.resumable(reading)
        session = again.session(stack, journal, record)
        progress = session.extend(record.id)
        hints.append(again.hint.line(record.id))
        if progress.closed:
            note(f"nothing was added to the document of {record.id}")
        report(session, run(session, [progress], verbose), as_json, again.hint, verbose)


def follow_up(stack: ExitStack, given: str, asked: list[str], again: Reopening, hints: list[str], *, reread: bool) -> None:
    """Answers questions from the memory of an earlier reading; with `reread`, searches for what it does not hold."""
    journal = stack.enter_context(Journal.open())
    record = journal.resumable(given)
    session = again.session(stack, journal, record)
    whole = session.settings
    session.settings = from_memory(whole, record.id, left_by(journal, record, session.document))
    results = run(session, start(session, asked, again.hint, hints), again.verbose)
    missing = [result.question for result in results if result.status == "not_found"]
    if missing and reread:
        note(f"the memory of {record.id} does not hold {len(missing)} of {len(asked)}: the document is searched for them")
        options = reader_options(session.opened, "search", None)
        session.settings = replace(whole, reader="search", reader_options=options, together=())
        searched = run(session, start(session, missing, again.hint, hints), again.verbose)
        found = {result.question: result for result in searched}
        results = [found.get(result.question, result) for result in results]
    elif missing:
        note(f"the memory of {record.id} does not hold it: with --reread, the document is searched")
    report(session, results, again.as_json, again.hint, again.verbose)
