"""Prints results to the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from memagent.cli.console import err, plain, warn, write
from memagent.cli.hints import Hint
from memagent.documents import Document
from memagent.grounding.verdict import Quote, Verdict
from memagent.grounding.words import meaning
from memagent.result import Reading, indented
from memagent.session import Session

_LEFT_OUT_SHOWN = 3
_BROKEN_SHOWN = 20
_STYLES = {"good": "green", "fair": "yellow"}
_ODD = (
    (("empty", "retry_empty"), "were empty"),
    (("retry_invalid", "invalid"), "did not follow the schema"),
    (("fitted", "retry_long"), "were too long, and were repeated or cut"),
)


def print_readings(session: Session, results: Sequence[Reading], hint: Hint, verbose: bool = False) -> None:
    """Prints answers with their evidence and memory to standard output, and the cost to standard error."""
    for number, result in enumerate(results, 1):
        if len(results) > 1:
            write((result.question, "bold"))
        if result.error is not None:
            err.print(f"[bold red]memagent:[/] {plain(result.error)}", soft_wrap=True)
            if result.id:
                err.print(plain(hint.line(result.id)), soft_wrap=True)
            continue
        write((shown_answer(result), "bold green"))
        if result.verdict is not None:
            print_verdict(result.verdict)
        elif result.quotes:
            write("  not verified; its words are here:")
            _print_quotes(result.quotes)
        if result.verification_error:
            err.print(f"[dim]verification: {plain(result.verification_error)}[/]", soft_wrap=True)
        if number == len(results) or not session.settings.together:  # else they have one memory
            _print_memory(result)
        write()
    _print_costs(session, results, verbose)


def shown_answer(result: Reading) -> str:
    """The answer as people read it: JSON on several lines."""
    return result.answer if result.data is None else indented(result.data)


def print_guessed(document: Document) -> None:
    """Prints one line about the files whose encoding was guessed to standard error."""
    guessed = [file for file in document.files if file.guessed]
    if guessed:
        shown = ", ".join(f"{file.name} ({file.encoding})" for file in guessed[:_LEFT_OUT_SHOWN])
        more = f" and {len(guessed) - _LEFT_OUT_SHOWN:,} more" if len(guessed) > _LEFT_OUT_SHOWN else ""
        err.print(f"[dim]encoding guessed: {plain(shown)}{more}; ask --encoding names another[/]", soft_wrap=True)


def print_left_out(document: Document) -> None:
    """Prints to standard error which files of a folder are not part of the document: those that cannot be read as warnings,
    the others in a line."""
    broken = [one for one in document.skipped if one.broken]
    for one in broken[:_BROKEN_SHOWN]:
        warn(f"left out: {one.reason}")
    if len(broken) > _BROKEN_SHOWN:
        warn(f"left out: {len(broken) - _BROKEN_SHOWN:,} more files that cannot be read (--json lists them)")
    others = [one for one in document.skipped if not one.broken]
    if not others:
        return
    shown = ", ".join(f"{one.path} ({one.reason})" for one in others[:_LEFT_OUT_SHOWN])
    more = len(others) - _LEFT_OUT_SHOWN
    err.print(f"[dim]skipped: {plain(shown)}{f' and {more:,} more' if more > 0 else ''}[/]", soft_wrap=True)


def print_verdict(verdict: Verdict) -> None:
    """Prints whether the document supports an answer, and the passages that do."""
    meant = meaning(verdict.status)
    said = meant.sentence[0].lower() + meant.sentence[1:]
    write((f"  {said}{':' if verdict.status in ('supported', 'partly') else ''}", _STYLES.get(meant.tone, "")))
    _print_quotes(verdict.quotes)
    for claim in verdict.unsupported if verdict.status == "partly" else ():
        write((f"  no passage supports: {claim}", "yellow"))


def _print_quotes(quotes: Sequence[Quote]) -> None:
    for one in quotes:
        cited = " ".join(one.cited_text.split())
        field = f"{one.field}  " if one.field else ""
        write("  ", field, (f"“{cited}”", "italic"), (f"  {one.place}, turn {one.turn + 1}", "dim"))


def _print_memory(result: Reading) -> None:
    write("  memory:" if result.provenance else "  memory: empty")
    for source in result.provenance:
        write(f"    {source.line}", (f"  turn {source.turn + 1}, from {source.place}" if source.place else "", "dim"))
    for outcomes, what in _ODD:
        if odd := sum(result.outcomes.get(outcome, 0) for outcome in outcomes):
            write((f"  {odd:,} of {result.turns:,} replies {what}", "dim"))
    if result.id:
        write((f"  reading {result.id}; to see every memory: memagent readings show {result.id}", "dim"))


def _print_costs(session: Session, results: Sequence[Reading], verbose: bool) -> None:
    tokens = max((result.document.get("tokens", 0) for result in results), default=0)
    shares = [result.share_read for result in results]
    usages = [usage for result in results for usage in (result.usage, result.verification)]
    prompt, written = sum(usage.prompt_tokens for usage in usages), sum(usage.completion_tokens for usage in usages)
    turns, seconds = sum(result.turns for result in results), max((result.seconds for result in results), default=0.0)
    before = sum(result.turns_resumed for result in results)
    checks = sum(result.verification.calls for result in results)
    files = len(session.document.files)
    window = session.settings.window
    ratio = f", {tokens / window:,.0f} × the window of {window:,}" if window and tokens > window else ""
    model = f"model {session.settings.model}" + (f" ({session.settings.identity})" if verbose else "")
    used = f"{prompt:,} tokens in, {written:,} out" if prompt or not turns else "the server reports no tokens"
    counted = f"{tokens:,} tokens" if session.opened.engine.tokenizer.exact else f"about {tokens:,} tokens (estimated)"
    read = f"{counted} in {files} file{'s'[: files != 1]}{ratio} · {_read(shares)}" if tokens else "nothing read"
    err.print(
        f"[dim]{read} · {turns:,} turn{'s'[: turns != 1]}"
        f"{f', {turns - before:,} of them new' if before else ''}"
        f"{f' and {checks:,} to verify' if checks else ''} ·"
        f" {used} · {seconds:.1f} s · {plain(model)}[/]",
        soft_wrap=True,
    )


def _read(shares: Sequence[float]) -> str:
    """The share of the document that was read, in per cent: the least and the most of several readings."""
    least, most = ("100" if share >= 1 else f"{min(99.9, 100 * share):.1f}" for share in (min(shares), max(shares)))
    return f"{least} % read" if least == most else f"{least} to {most} % read"
