"""Options that commands share, and what they mean where it takes more than a word."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from memagent.cli import interrupts
from memagent.errors import ConfigError
from memagent.models.open import OpenModel, open_model
from memagent.settings import ReadingOptions, Settings, make_settings

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
TrustUsage = Annotated[
    bool | None,
    typer.Option(
        "--trust-usage/--ignore-usage",
        help="If a server counts too few prompt tokens: assume that it cut the prompt, or ignore its counts.",
    ),
]
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
    trust_usage: bool | None = None,
) -> OpenModel:
    """The model, to be closed with the stack."""
    interrupts.check()
    opened = open_model(
        model,
        base_url=base_url,
        concurrency=concurrency,
        timeout=timeout,
        window=window,
        tokenizer=tokenizer,
        usage="check" if trust_usage is None else "trust" if trust_usage else "ignore",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The model and the way of reading that a command line asks for."""

    model: str
    base_url: str | None
    concurrency: int
    timeout: float
    window: int | None
    tokenizer: str | None
    trust_usage: bool | None
    options: ReadingOptions

    def opened(self, stack: ExitStack) -> OpenModel:
        """The model, to be closed with the stack."""
        return opened_model(
            stack,
            self.model,
            self.base_url,
            self.concurrency,
            self.timeout,
            self.window,
            self.tokenizer,
            self.trust_usage,
        )

    def settings(self, opened: OpenModel, **instead: Any) -> Settings:
        """The settings of a reading; `instead` overrides options. Raises ConfigError."""
        return make_settings(
            opened,
            model=self.model,
            base_url=self.base_url,
            tokenizer=absolute(self.tokenizer) if self.tokenizer else None,
            **{**self.options, **instead},
        )


def _chosen(
    model: Annotated[str, typer.Option("--model", "-m", help="'embedded', a folder, or a served name.")] = "embedded",
    base_url: BaseUrl = None,
    reader: Annotated[str, typer.Option("--reader", "-r", help="How to read: see `memagent readers`.")] = "memory",
    passages: Annotated[int | None, typer.Option(min=1, help="Passages that the reader 'retrieve' shows.")] = None,
    through_memory: Annotated[
        bool | None,
        typer.Option(
            "--through-memory/--from-text",
            help="Whether direct, truncate and retrieve make a memory of the text, or answer from the text itself.",
        ),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Prompt profile: a name or a TOML file.")] = None,
    chunk_tokens: Tokens = None,
    memory_tokens: Tokens = None,
    answer_tokens: Tokens = None,
    question_tokens: Tokens = None,
    reasoning_tokens: Annotated[int | None, typer.Option(min=0, help="Room for thinking before each reply.")] = None,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    rules: Annotated[str, typer.Option(help="How replies are handled: careful or paper.")] = "careful",
    concurrency: Concurrency = 8,
    timeout: Timeout = 600.0,
    window: Window = None,
    tokenizer: TokenizerPath = None,
    trust_usage: TrustUsage = None,
) -> Chosen:
    given = {"passages": passages, "through_memory": through_memory}
    return Chosen(
        model=model,
        base_url=server_of(model, base_url),
        concurrency=concurrency,
        timeout=timeout,
        window=window,
        tokenizer=tokenizer,
        trust_usage=trust_usage,
        options=ReadingOptions(
            profile=profile,
            reader=reader,
            reader_options={name: value for name, value in given.items() if value is not None},
            question_tokens=question_tokens,
            chunk_tokens=chunk_tokens,
            memory_tokens=memory_tokens,
            answer_tokens=answer_tokens,
            reasoning_tokens=reasoning_tokens,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
            rules=rules,  # type: ignore[typeddict-item]  # checked by make_settings
        ),
    )


def reads(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options that choose model and way of reading, in place of its parameter `chosen`."""
    shared = inspect.signature(_chosen).parameters
    hints = get_type_hints(_chosen, include_extras=True) | get_type_hints(command, include_extras=True)
    own = inspect.signature(command).parameters
    merged = [
        one.replace(annotation=hints[one.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in own.items()
        for one in (shared.values() if name == "chosen" else [parameter])
    ]

    @wraps(command)
    def with_options(**values: Any) -> None:
        command(chosen=_chosen(**{name: values.pop(name) for name in shared}), **values)

    with_options.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]  # what typer reads
    with_options.__annotations__ = {one.name: one.annotation for one in merged}
    return with_options
