"""`memagent resume`, `memagent extend` and `memagent ask --from`: go on from a reading in the journal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from glob import has_magic
from pathlib import Path
from typing import Annotated

import typer

from memagent.api import document_loading, document_paths
from memagent.cli.console import boundary, note, warn
from memagent.cli.hints import Hint
from memagent.cli.options import (
    AsJson,
    BaseUrl,
    Chosen,
    Concurrency,
    NoVerify,
    Predict,
    Timeout,
    TrustUsage,
    Verbose,
    absolute,
    from_here,
    opened_model,
    server_again,
    sharing,
)
from memagent.cli.progress import cutting
from memagent.cli.running import load_document, report, run, start
from memagent.errors import DocumentError
from memagent.journal import Journal, ReadingRecord
from memagent.models.concurrency import AtOnce
from memagent.session import Progress, Session, left_by
from memagent.settings import Settings, from_memory, reader_options

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a reading, or its beginning.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopening:
    """What a command line says of a reading that goes on: where its server is now, and how to show the result."""

    base_url: str | None
    tokenizer: str | None
    concurrency: AtOnce
    timeout: float
    trust_usage: bool | None
    predict: bool
    as_json: bool
    verified: bool
    verbose: bool

    @classmethod
    def of(cls, chosen: Chosen, **shown: bool) -> Reopening:
        """What `ask` says of it."""
        return cls(
            base_url=chosen.base_url,
            tokenizer=chosen.tokenizer,
            concurrency=chosen.concurrency,
            timeout=chosen.timeout,
            trust_usage=chosen.trust_usage,
            predict=chosen.predict,
            **shown,
        )

    def hint(self, paths: Sequence[str] = ()) -> Hint:
        """How to resume what is interrupted now, with a document that has moved to `paths`."""
        moved = absolute(self.tokenizer) if self.tokenizer else None
        return Hint(paths=[absolute(path) for path in paths], tokenizer=moved, base_url=self.base_url)

    def session(self, stack: ExitStack, journal: Journal, record: ReadingRecord, paths: Sequence[str] = ()) -> Session:
        """A session with the settings of a reading, over its document, which is at `paths` now if there are any. The stack
        closes document and model."""
        settings = Settings.from_json(record.settings)
        located = [absolute(path) for path in paths or document_paths(record)]
        known = record.document.get("paths")
        read = known if isinstance(known, Sequence) else ()
        gone = [path for path in located if path in read and not (has_magic(path) or Path(path).exists())]
        if gone:
            raise DocumentError(
                f"{gone[0]}: there is no such file or folder any more. If it has moved, name its new place: memagent resume"
                f" {record.id} PATH, or memagent ask PATH --from {record.id}"
            )
        document = load_document(stack, list(map(from_here, located)), document_loading(record), self.as_json)
        opened = opened_model(
            stack,
            settings.model,
            self.trust_usage,
            base_url=server_again(settings.base_url, self.base_url),
            concurrency=self.concurrency,
            timeout=self.timeout,
            window=settings.window,
            tokenizer=self.tokenizer or settings.tokenizer,
            predict=self.predict,
        )
        # A moved tokenizer may be another file; the session checks that it gives the same plan.
        again = settings.reopened(opened)
        return Session(document, opened, again, journal, paths=located, verified=self.verified)


def _note_moved(session: Session, record: ReadingRecord, progress: Progress | None = None) -> None:
    """Says that the model of a reading is asked elsewhere than before, if it is. For an answer that was verified, or is not
    to be, it is not asked."""
    begun = Settings.from_json(record.settings)
    asked = progress is None or not progress.closed or (session.verified and not progress.verdicts)
    if asked and begun.base_url and session.settings.identity != begun.identity:
        note(f"the model is asked at {session.settings.identity}; so far it was {begun.identity}")


def _reopening(
    base_url: BaseUrl = None,
    tokenizer: Annotated[str | None, typer.Option(help="The new path of the tokenizer.json that counts tokens.")] = None,
    concurrency: Concurrency = 8,
    timeout: Timeout = 600.0,
    trust_usage: TrustUsage = None,
    predict: Predict = False,
    as_json: AsJson = False,
    no_verify: NoVerify = False,
    verbose: Verbose = False,
) -> Reopening:
    return Reopening(
        base_url=base_url,
        tokenizer=tokenizer,
        concurrency=concurrency,
        timeout=timeout,
        trust_usage=trust_usage,
        predict=predict,
        as_json=as_json,
        verified=not no_verify,
        verbose=verbose,
    )


# For commands that go on from a reading, as `again`.
goes_on = sharing("again", _reopening)


@goes_on
def resume(
    reading: Id,
    again: Reopening,
    paths: Annotated[list[str] | None, typer.Argument(metavar="[PATH...]", help="The new path of the document.")] = None,
) -> None:
    """Continue a reading that was interrupted or failed, without repeating finished turns."""
    with boundary() as hints, ExitStack() as stack:
        journal = stack.enter_context(Journal.open())
        record = journal.resumable(reading)
        hint = again.hint(paths or [])
        hints.append(hint.line(record.id))
        session = again.session(stack, journal, record, paths or [])
        with cutting(session):
            progress = session.resume(record.id)
        _note_moved(session, record, progress)
        report(session, run(session, [progress], again.verbose), again.as_json, hint, again.verbose)


@goes_on
def extend(
    reading: Id,
    again: Reopening,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[MORE...]", help="Files that were added to the document.")
    ] = None,
) -> None:
    """Continue a reading whose document has grown: read only what was added to its files, and the files MORE.

    The result is that of one reading of the grown document. It takes the place of the old one, under the same id.
    """
    with boundary() as hints, ExitStack() as stack:
        journal = stack.enter_context(Journal.open())
        record = journal.resumable(reading)
        session = again.session(stack, journal, record, [*document_paths(record), *(more or [])])
        with cutting(session):
            progress = session.extend(record.id)
        _note_moved(session, record, progress)
        hint = again.hint()
        hints.append(hint.line(record.id))
        if progress.closed:
            note(f"nothing was added to the document of {record.id}")
        report(session, run(session, [progress], again.verbose), again.as_json, hint, again.verbose)


def follow_up(
    stack: ExitStack,
    given: str,
    paths: list[str],
    asked: list[str],
    again: Reopening,
    hints: list[str],
    *,
    reread: bool,
    schema: Path | None,
) -> None:
    """Answers questions from the memory of an earlier reading; with `reread`, searches for what it does not hold."""
    journal = stack.enter_context(Journal.open())
    record, hint = journal.resumable(given), again.hint(paths)
    session = again.session(stack, journal, record, paths)
    _note_moved(session, record)
    whole = session.settings
    session.settings = from_memory(whole, record.id, left_by(journal, record, session.document), schema)
    if session.opened.defaults.scope:
        warn(f"{whole.model} may give the answer to the earlier question instead: compare it with the new question")
    results = run(session, start(session, asked, hint, hints), again.verbose)
    missing = [result.question for result in results if result.status == "not_found"]
    if missing and reread:
        note(
            f"the memory of {record.id} does not hold {len(missing)} of {len(asked)} answers: memagent searches the"
            " document for them"
        )
        options = reader_options(session.opened, "search", None)
        session.settings = replace(
            whole, reader="search", reader_options=options, together=(), schema=session.settings.schema
        )
        searched = iter(run(session, start(session, missing, hint, hints), again.verbose))
        results = [next(searched) if result.status == "not_found" else result for result in results]
    elif missing:
        note(f"the memory of {record.id} does not hold it: with --reread, memagent searches the document")
    report(session, results, again.as_json, hint, again.verbose)
