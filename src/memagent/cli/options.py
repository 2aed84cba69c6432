"""Options that commands share, and what they mean where it takes more than a word."""

from __future__ import annotations

import math
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from memagent.cli import interrupts
from memagent.errors import ConfigError
from memagent.models.open import OpenModel, open_model

_BASE_URL_VARIABLE = "MEMAGENT_BASE_URL"


def _finite(value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


Paths = Annotated[list[str], typer.Argument(metavar="PATH...", help="Files, folders, globs, or - for standard input.")]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        help=f"Base URL of an OpenAI-compatible server. For served models, {_BASE_URL_VARIABLE} stands in for it."
    ),
]
Concurrency = Annotated[int, typer.Option(min=1, help="Requests in flight at a server.")]
Timeout = Annotated[
    float, typer.Option(min=0.1, callback=_finite, help="Seconds to wait for a server's reply before trying again.")
]
Window = Annotated[int | None, typer.Option(min=64, help="The model's window in tokens, where a server does not say it.")]
TokenizerPath = Annotated[str | None, typer.Option("--tokenizer", help="tokenizer.json, or its folder, to count with.")]
Tokens = Annotated[int | None, typer.Option(min=1)]
Temperature = Annotated[float, typer.Option(callback=_finite, help="0 is greedy.")]
TopP = Annotated[float, typer.Option(callback=_finite, help="Nucleus sampling.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log every turn instead of showing progress.")]
Price = Annotated[float | None, typer.Option(min=0, callback=_finite, help="For --dry-run: price of a million tokens.")]


def server_of(model: str, base_url: str | None) -> str | None:
    """The server to ask. The variable is for models that must be served: it never redirects one that is on this machine."""
    if base_url is not None:
        return base_url
    local = model == "embedded" or Path(model).expanduser().is_dir()
    return None if local else os.environ.get(_BASE_URL_VARIABLE) or None


def server_again(remembered: str | None, base_url: str | None) -> str | None:
    """The server to resume with. The variable may move a served reading; one without a server stays without."""
    if base_url is not None or remembered is None:
        return base_url
    return os.environ.get(_BASE_URL_VARIABLE) or remembered


def opened_model(
    stack: ExitStack,
    model: str,
    base_url: str | None,
    concurrency: int,
    timeout: float,
    window: int | None,
    tokenizer: str | None,
) -> OpenModel:
    """The model, to be closed with the stack."""
    interrupts.check()
    opened = open_model(
        model, base_url=base_url, concurrency=concurrency, timeout=timeout, window=window, tokenizer=tokenizer
    )
    stack.callback(opened.engine.close)
    interrupts.check()
    return opened


def absolute(path: str) -> str:
    """A path that still holds in another folder; - stays what it is."""
    return path if path == "-" else str(Path(path).absolute())


def all_questions(given: list[str] | None, file: Path | None) -> list[str]:
    """The questions of the command line, then those of the file. Raises ConfigError."""
    asked = list(given or [])
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the questions in {file} cannot be read: {error}") from error
        asked += [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not asked:
        raise ConfigError("there is no question: give one with -q, or a file of them with --questions")
    return asked
