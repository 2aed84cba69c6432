"""How results look on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from memagent.cli.console import err, out, plain
from memagent.result import Reading
from memagent.session import Session


def print_readings(session: Session, results: Sequence[Reading]) -> None:
    """Answers on standard output; where they were found, the memory and the costs with them."""
    for result in results:
        if len(results) > 1:
            out.print(f"[bold]{plain(result.question)}[/]")
        if result.error is not None:
            err.print(f"[bold red]memagent:[/] {plain(result.error)}", soft_wrap=True)
            if result.id:
                err.print(f"resume with: memagent resume {result.id}")
            continue
        out.print(f"[bold green]{plain(result.answer)}[/]")
        _print_origin(result)
        out.print()
    _print_costs(session, results)


def _print_origin(result: Reading) -> None:
    for found in result.evidence:
        out.print(f"  found in {plain(found.place)} (turn {found.turn + 1}): [italic]“{plain(found.quote)}”[/]")
    if not result.evidence:
        out.print("  [dim]the words of the answer stand nowhere in the text the memory came from[/]")
    out.print("  memory:")
    for source in result.provenance:
        where = f"  [dim]turn {source.turn + 1}, from {plain(source.place)}[/]" if source.place else ""
        out.print(f"    {plain(source.line)}{where}")
    if result.id:
        out.print(f"  [dim]reading {result.id}; every memory: memagent readings show {result.id}[/]")


def _print_costs(session: Session, results: Sequence[Reading]) -> None:
    tokens = max((result.document.get("tokens", 0) for result in results), default=0)
    prompt = sum(result.usage.prompt_tokens for result in results)
    written = sum(result.usage.completion_tokens for result in results)
    turns, seconds = sum(result.turns for result in results), max((result.seconds for result in results), default=0.0)
    files = len(session.document.files)
    window = session.settings.window
    ratio = f", {tokens / window:,.0f} × the window of {window:,}" if window else ""
    err.print(
        f"[dim]{tokens:,} tokens in {files} file{'s'[: files != 1]}{ratio} · {turns:,} turns ·"
        f" {prompt:,} tokens in, {written:,} out · {seconds:.1f} s · {session.settings.identity}[/]",
        soft_wrap=True,
    )
