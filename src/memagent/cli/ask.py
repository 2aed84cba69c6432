"""`memagent ask` and `memagent resume`."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from memagent.cli.console import INTERRUPTED, MODEL, boundary, err, print_json
from memagent.cli.estimate import print_estimate
from memagent.cli.progress import shown
from memagent.cli.show import print_readings
from memagent.documents import load
from memagent.errors import ConfigError, JournalError
from memagent.journal import Journal
from memagent.models.open import OpenModel, open_model
from memagent.result import Reading
from memagent.session import Progress, Session
from memagent.settings import Settings, make_settings

Paths = Annotated[list[str], typer.Argument(metavar="PATH...", help="Files, folders, globs, or - for standard input.")]
BaseUrl = Annotated[str | None, typer.Option(help="Base URL of an OpenAI-compatible server.", envvar="MEMAGENT_BASE_URL")]
Concurrency = Annotated[int, typer.Option(min=1, help="Requests in flight at a server.")]
Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds to wait for a server's reply before trying again.")]
Window = Annotated[int | None, typer.Option(min=64, help="The model's window in tokens, where a server does not say it.")]
TokenizerPath = Annotated[str | None, typer.Option("--tokenizer", help="tokenizer.json, or its folder, to count with.")]
Tokens = Annotated[int | None, typer.Option(min=1)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log every turn instead of showing progress.")]
Price = Annotated[float | None, typer.Option(min=0, help="For --dry-run: price of a million tokens.")]


def ask(
    paths: Paths,
    question: Annotated[
        list[str] | None, typer.Option("--question", "-q", help="What to find out; repeat for more.")
    ] = None,
    questions: Annotated[
        Path | None, typer.Option(help="A file with one question a line; # starts a comment line.")
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="'embedded', a folder, or a served name.")] = "embedded",
    base_url: BaseUrl = None,
    profile: Annotated[str | None, typer.Option(help="Prompt profile: a name or a TOML file.")] = None,
    chunk_tokens: Tokens = None,
    memory_tokens: Tokens = None,
    answer_tokens: Tokens = None,
    question_tokens: Tokens = None,
    reasoning_tokens: Annotated[int | None, typer.Option(min=0, help="Room for thinking before each reply.")] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Nucleus sampling.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    rules: Annotated[str, typer.Option(help="How odd replies are handled: careful or paper.")] = "careful",
    direct: Annotated[bool, typer.Option("--direct", help="Show the whole document at once; it must fit.")] = False,
    encoding: Annotated[str | None, typer.Option(help="Encoding of text files, if detection is wrong.")] = None,
    concurrency: Concurrency = 8,
    timeout: Timeout = 600.0,
    window: Window = None,
    tokenizer: TokenizerPath = None,
    as_json: AsJson = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what it would take; call nothing.")] = False,
    price_in: Price = None,
    price_out: Price = None,
    no_journal: Annotated[bool, typer.Option("--no-journal", help="Keep nothing; cannot be resumed.")] = False,
    verbose: Verbose = False,
) -> None:
    """Read documents with a small window and answer from the memory alone."""
    with boundary(), ExitStack() as stack:
        asked = _questions(question, questions)
        document = stack.enter_context(load(paths, encoding=encoding))
        opened = _open(stack, model, base_url, concurrency, timeout, window, tokenizer)
        settings = make_settings(
            opened,
            model=model,
            base_url=base_url,
            tokenizer=str(Path(tokenizer).absolute()) if tokenizer else None,
            profile=profile,
            question_tokens=question_tokens,
            chunk_tokens=chunk_tokens,
            memory_tokens=memory_tokens,
            answer_tokens=answer_tokens,
            reasoning_tokens=reasoning_tokens,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
            rules=rules,  # type: ignore[arg-type]  # checked there
            direct=direct,
        )
        journal = None if no_journal else stack.enter_context(Journal.open())
        session = Session(document, opened, settings, journal, paths=_absolute(paths), encoding=encoding)
        if dry_run:
            print_estimate(session, asked, price_in, price_out, as_json)
        else:
            _report(session, _run(session, session.start(asked), verbose), as_json)


def resume(
    reading: Annotated[str, typer.Argument(metavar="ID", help="The reading, or the beginning of its id.")],
    paths: Annotated[list[str] | None, typer.Argument(metavar="[PATH...]", help="Where the document is now.")] = None,
    base_url: BaseUrl = None,
    concurrency: Concurrency = 8,
    timeout: Timeout = 600.0,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Go on with a reading that was interrupted or failed. No finished turn is asked again."""
    with boundary(), ExitStack() as stack:
        journal = stack.enter_context(Journal.open())
        record = journal.show(reading)
        settings = Settings.from_json(record.settings)
        document = stack.enter_context(
            load(_resumable(record.id, record.document, paths), encoding=_encoding(record.document))
        )
        url = base_url or settings.base_url
        opened = _open(stack, settings.model, url, concurrency, timeout, settings.window, settings.tokenizer)
        now = settings.reopened(opened)
        session = Session(document, opened, now, journal)
        _report(session, _run(session, [session.resume(record.id)], verbose), as_json)


def _open(
    stack: ExitStack,
    model: str,
    base_url: str | None,
    concurrency: int,
    timeout: float,
    window: int | None,
    tokenizer: str | None,
) -> OpenModel:
    opened = open_model(
        model, base_url=base_url, concurrency=concurrency, timeout=timeout, window=window, tokenizer=tokenizer
    )
    stack.callback(opened.engine.close)
    return opened


def _absolute(paths: list[str]) -> list[str]:
    return [path if path == "-" else str(Path(path).absolute()) for path in paths]


def _questions(given: list[str] | None, file: Path | None) -> list[str]:
    asked = list(given or [])
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the questions in {file} cannot be read: {error}") from error
        asked += [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not asked:
        raise ConfigError("there is no question: give one with -q, or a file of them with --questions")
    return asked


def _run(session: Session, readings: list[Progress], verbose: bool) -> list[Reading]:
    """Runs readings with progress. Ctrl-C and SIGTERM stop after what is durable and say how to go on."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with shown(readings, verbose) as watcher:
            return session.run(readings, watcher)
    except KeyboardInterrupt:
        done = sum(reading.ledger.turns for reading in readings)
        err.print(f"\ninterrupted after {done:,} turns")
        for reading in readings:
            err.print(f"resume with: memagent resume {reading.id}" if reading.id else "nothing was kept (--no-journal)")
        raise typer.Exit(INTERRUPTED) from None


def _report(session: Session, results: list[Reading], as_json: bool) -> None:
    if as_json:
        objects = [result.to_json() for result in results]
        print_json(objects[0] if len(objects) == 1 else {"readings": objects})
    else:
        print_readings(session, results)
    sys.stdout.flush()
    if any(result.error is not None for result in results):
        raise typer.Exit(MODEL)


def _resumable(id: str, document: Any, paths: list[str] | None) -> list[str]:
    found = paths or list(document.get("paths") or [])
    if not found or "-" in found:
        raise JournalError(f"reading {id} read its document from standard input or memory: give its path after the id")
    return found


def _encoding(document: Any) -> str | None:
    encoding = document.get("encoding")
    return str(encoding) if encoding else None
