"""`memagent ask`."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import compress
from pathlib import Path
from typing import Annotated

import typer

from memagent.cli.again import Reopening, follow_up
from memagent.cli.console import boundary
from memagent.cli.estimate import past, print_estimate
from memagent.cli.hints import Hint
from memagent.cli.options import (
    AsJson,
    Chosen,
    Format,
    NoVerify,
    Price,
    Verbose,
    absolute,
    all_questions,
    only_a_server,
    reads,
    schema_of,
)
from memagent.cli.running import load_document, report, run, start
from memagent.documents import Document
from memagent.documents.document import Loading
from memagent.errors import BrokenFileError, ConfigError, DocumentError
from memagent.journal import Journal
from memagent.session import Session


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
    form: Format = None,
    reread: Annotated[
        bool, typer.Option("--reread", help="With --from: search the document for what the memory does not hold.")
    ] = False,
    encoding: Annotated[str | None, typer.Option(help="Encoding of text files, if detection is wrong.")] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out files of a folder that cannot be read; they are named.")
    ] = False,
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
        asked, given = all_questions(question, questions), paths or []
        own = direct, together, dry_run, no_journal, encoding is not None, skip_broken, not only_a_server(chosen)
        _check(given, earlier, reread, no_verify, list(compress(_SETTLED, own)))
        _check_effects(chosen, direct, priced=price_in is not None or price_out is not None, dry_run=dry_run)
        if earlier is not None:
            again = Reopening.of(chosen, as_json=as_json, verified=not no_verify, verbose=verbose)
            follow_up(stack, earlier, given, asked, again, hints, reread=reread, schema=schema_of(form))
            return
        located = [absolute(path) for path in given]
        document = _document(stack, given, {"encoding": encoding, "skip_broken": skip_broken}, as_json)
        opened = chosen.opened(stack)
        settings = chosen.settings(opened, schema=schema_of(form), **({"reader": "direct"} if direct else {}))
        journal = past(stack) if dry_run else None if no_journal else stack.enter_context(Journal.open())
        session = Session(document, opened, settings, journal, paths=located, verified=not no_verify)
        if together:
            asked = session.together(asked)
        if dry_run:
            print_estimate(session, asked, price_in, price_out, as_json)
        else:
            hint = Hint(paths=["PATH"] if "-" in given else [], base_url=chosen.base_url)
            readings = start(session, asked, hint, hints)
            report(session, run(session, readings, verbose), as_json, hint, verbose)


# What --from has no use for, because the earlier reading settled it.
_SETTLED = (
    "--direct",
    "--together",
    "--dry-run",
    "--no-journal",
    "--encoding",
    "--skip-broken",
    "options of the model and of the reading",
)


def _document(stack: ExitStack, paths: list[str], loading: Loading, as_json: bool) -> Document:
    """The document. Of a file that cannot be read, it says that the others can be."""
    try:
        return load_document(stack, paths, loading, as_json)
    except BrokenFileError as error:
        raise DocumentError(f"{error}. To read the others without such files, add --skip-broken") from error


def _check(paths: list[str], earlier: str | None, reread: bool, no_verify: bool, settled: list[str]) -> None:
    """Raises ConfigError for options that do not go together. `settled`: those given that --from has no use for."""
    if earlier is None and not paths:
        raise ConfigError("no document given: name a file or folder, - for standard input, or --from with a reading")
    if earlier is None and reread:
        raise ConfigError("--reread goes with --from, whose memory may not hold the answer")
    if earlier is not None and settled:
        raise ConfigError(
            f"--from asks the memory of an earlier reading, with its settings: leave out {', '.join(settled)}"
        )
    if reread and no_verify:
        raise ConfigError("--reread searches for what verification says is missing: leave out --no-verify")


def _check_effects(chosen: Chosen, direct: bool, *, priced: bool, dry_run: bool) -> None:
    """Raises ConfigError for options that would have no effect."""
    if priced and not dry_run:
        raise ConfigError("--price-in and --price-out are for the estimate of --dry-run: add it, or leave them out")
    if direct and chosen.options.get("reader") not in ("direct", "memory", None):  # "memory" is the default
        raise ConfigError(f"--direct is --reader direct: it does not go with --reader {chosen.options['reader']}")
