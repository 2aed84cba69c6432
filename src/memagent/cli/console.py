"""What the commands share: consoles, exit codes, the error boundary."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from memagent.errors import DocumentError, MemagentError, MissingExtraError, ModelError

USAGE, DOCUMENT, MODEL, INTERRUPTED = 2, 3, 4, 130

# Answers go to standard output, everything else to standard error.
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False)


@contextmanager
def boundary() -> Iterator[None]:
    """Turns memagent's errors into a message and an exit code. The one place where they are caught."""
    try:
        yield
    except MemagentError as error:
        err.print(f"[bold red]memagent:[/] {plain(str(error))}", soft_wrap=True)
        raise typer.Exit(_code(error)) from error
    except BrokenPipeError:
        # Whoever read our output has gone: nothing is left to say, and Python must not try at exit.
        sys.stdout = None
        raise typer.Exit(1) from None


def print_json(value: Any) -> None:
    """One JSON value on standard output, unaltered by styling or terminal width."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def plain(text: str) -> str:
    """Text that is not ours shows as it is: no markup, no control characters."""
    return escape("".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text))


def _code(error: MemagentError) -> int:
    if isinstance(error, DocumentError):
        return DOCUMENT
    if isinstance(error, MissingExtraError):
        return DOCUMENT if error.extra == "documents" else MODEL
    return MODEL if isinstance(error, ModelError) else USAGE
