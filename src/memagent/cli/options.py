"""Options that several commands share, and their interpretation."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from memagent.cli import interrupts
from memagent.cli.console import warn
from memagent.errors import ConfigError
from memagent.models.concurrency import AtOnce
from memagent.models.open import OpenModel, open_model
from memagent.settings import AUTO, ReadingOptions, Settings, make_settings

_BASE_URL_VARIABLE = "MEMAGENT_BASE_URL"


def _finite(value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


BaseUrl = Annotated[
    str | None,
    typer.Option(help=f"Base URL of an OpenAI-compatible server. For served models, the default is ${_BASE_URL_VARIABLE}."),
]


def _concurrency(value: str | int) -> AtOnce:
    if value != "auto" and not (str(value).isdecimal() and int(value)):
        raise typer.BadParameter(f"{value!r} is neither a number of at least 1 nor 'auto'")
    return "auto" if value == "auto" else int(value)


Concurrency = Annotated[
    Any,
    typer.Option(
        parser=_concurrency,
        metavar="N|auto",
        help="Number of concurrent requests to a server; auto: memagent finds the fastest number.",
    ),
]
Timeout = Annotated[
    float, typer.Option(min=0.1, callback=_finite, help="Seconds to wait for a server's reply before a retry.")
]
Window = Annotated[
    int | None,
    typer.Option(min=64, help="The model's window in tokens, if the server does not report it (default: 8,192)."),
]
TokenizerPath = Annotated[
    str | None, typer.Option("--tokenizer", help="A tokenizer.json, or its folder, to count tokens with.")
]
TrustUsage = Annotated[
    bool | None,
    typer.Option(
        "--trust-usage/--ignore-usage",
        help="If a server counts too few prompt tokens: always assume that it cut the prompt, or never (default: check).",
    ),
]
Predict = Annotated[
    bool,
    typer.Option(
        "--predict",
        help="Send the old memory as the `prediction` of the new one (OpenAI's API): faster, but may cost more.",
    ),
]
ReaderName = Annotated[str, typer.Option("--reader", "-r", help="How to read the document; see `memagent readers`.")]
Passages = Annotated[
    int | None, typer.Option(min=1, help="Number of passages that 'retrieve' shows, or that 'search' reads for each query.")
]
Rounds = Annotated[
    int | None, typer.Option(min=1, help="The largest number of rounds of 'parallel', or of queries of 'search'.")
]
Focus = Annotated[
    bool | None,
    typer.Option("--focus", help="After its first round, 'parallel' shows only chunks that the memory leads to (BM25)."),
]
Rereads = Annotated[int | None, typer.Option(min=0, help="How many times 'reread' may read the document again.")]
Exit = Annotated[bool | None, typer.Option("--exit", help="Let 'gated' end the reading when the memory holds the answer.")]
ThroughMemory = Annotated[
    bool | None,
    typer.Option(
        "--through-memory/--from-text",
        help="Whether direct, truncate and retrieve write a memory from the text, or answer from the text.",
    ),
]
_ChunkTokens = Annotated[
    int | None, typer.Option(min=1, help="Largest size of a chunk (default: 5,000 tokens, if the window allows).")
]
_MemoryTokens = Annotated[
    int | None, typer.Option(min=1, help="Largest size of the memory (default: 1,024 tokens, if the window allows).")
]
_AnswerTokens = Annotated[
    int | None, typer.Option(min=1, help="Largest size of the answer (default: 1,024 tokens, if the window allows).")
]
_QuestionTokens = Annotated[
    int | None, typer.Option(min=1, help="Largest size of the question (default: 1,024 tokens, if the window allows).")
]
Temperature = Annotated[
    float, typer.Option(callback=_finite, help="Sampling temperature; 0 always takes the most likely token.")
]
TopP = Annotated[
    float,
    typer.Option(
        callback=_finite, help="Nucleus sampling: sample from the most likely tokens with this total probability."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
NoVerify = Annotated[
    bool, typer.Option("--no-verify", help="Do not check the answer: no search for passages that support it.")
]
Format = Annotated[
    tuple[str, Path] | None,
    typer.Option("--format", metavar="json-schema FILE", help="Answer with JSON that follows the JSON Schema in FILE."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log every turn instead of showing progress.")]
Price = Annotated[float | None, typer.Option(min=0, callback=_finite, help="For --dry-run: the price of a million tokens.")]


def server_of(model: str, base_url: str | None) -> str | None:
    """The server to use. The environment variable applies to served models only, never to a model on this machine."""
    if base_url is not None:
        return base_url
    local = model == "embedded" or Path(model).expanduser().is_dir()
    return None if local else os.environ.get(_BASE_URL_VARIABLE) or None


def server_again(remembered: str | None, base_url: str | None) -> str | None:
    """The server to resume with. The environment variable applies only to readings that used a server."""
    if base_url is not None or remembered is None:
        return base_url
    return os.environ.get(_BASE_URL_VARIABLE) or remembered


def opened_model(stack: ExitStack, model: str, trust_usage: bool | None, **options: Any) -> OpenModel:
    """The model, opened with `options` of `open_model`. The stack closes it."""
    interrupts.check()
    opened = open_model(model, usage=usage_of(trust_usage), **options)
    stack.callback(opened.engine.close)
    interrupts.check()
    return opened


def usage_of(trust_usage: bool | None) -> str:
    """What --trust-usage says, as `open_model` takes it."""
    return "check" if trust_usage is None else "trust" if trust_usage else "ignore"


def schema_of(form: tuple[str, Path] | None) -> Path | None:
    """The file of a schema that --format names. Raises ConfigError for another format."""
    if form is not None and form[0] != "json-schema":
        raise ConfigError(
            f"--format {form[0]} {form[1]}: the only format is json-schema, followed by the file of the schema"
        )
    return form[1] if form else None


def absolute(path: str) -> str:
    """The absolute path, or - unchanged."""
    return path if path == "-" else str(Path(path).absolute())


def from_here(path: str) -> str:
    """A path as one types it: relative to the working folder, if that holds it. A file named "-" is no standard input."""
    here = Path.cwd()
    inside = str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
    return path if inside == "-" else inside


def all_questions(given: list[str] | None, file: Path | None) -> list[str]:
    """The questions of the command line, then those of the file. Raises ConfigError if there are none."""
    asked = list(given or [])
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the questions in {file}: {error}") from error
        asked += [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not asked:
        raise ConfigError("no question given: use -q, or --questions for a file")
    return asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The model and the reading options of a command line."""

    model: str
    base_url: str | None
    concurrency: AtOnce
    timeout: float
    window: int | None
    tokenizer: str | None
    trust_usage: bool | None
    predict: bool
    options: ReadingOptions

    def opened(self, stack: ExitStack) -> OpenModel:
        """The model. The stack closes it."""
        return opened_model(
            stack,
            self.model,
            self.trust_usage,
            base_url=self.base_url,
            concurrency=self.concurrency,
            timeout=self.timeout,
            window=self.window,
            tokenizer=self.tokenizer,
            predict=self.predict,
        )

    def settings(self, opened: OpenModel, **instead: Any) -> Settings:
        """The settings of a reading. `instead` overrides options. Raises ConfigError."""
        settings = make_settings(
            opened,
            model=self.model,
            base_url=self.base_url,
            tokenizer=absolute(self.tokenizer) if self.tokenizer else None,
            **{**self.options, **instead},
        )
        if settings.reader != AUTO and not opened.trained_for(settings.reader):
            known = ", ".join(opened.defaults.readers or ())
            warn(
                f"{self.model} was not trained for the reader {settings.reader!r}: expect wrong answers."
                f" It was trained for {known}."
            )
        return settings


def _chosen(
    model: Annotated[
        str, typer.Option("--model", "-m", help="'embedded', a folder of weights, or the name of a served model.")
    ] = "embedded",
    base_url: BaseUrl = None,
    reader: ReaderName = "memory",
    passages: Passages = None,
    rounds: Rounds = None,
    focus: Focus = None,
    rereads: Rereads = None,
    exit: Exit = None,
    through_memory: ThroughMemory = None,
    profile: Annotated[str | None, typer.Option(help="Prompt profile: a name or a TOML file.")] = None,
    chunk_tokens: _ChunkTokens = None,
    memory_tokens: _MemoryTokens = None,
    answer_tokens: _AnswerTokens = None,
    question_tokens: _QuestionTokens = None,
    reasoning_tokens: Annotated[
        int | None, typer.Option(min=0, help="Tokens for the reasoning of the model before each reply.")
    ] = None,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Annotated[int, typer.Option(help="Seed for sampling.")] = 0,
    rules: Annotated[
        str, typer.Option(help="What to do with an empty, cut or too long reply: careful (ask again) or paper (use it).")
    ] = "careful",
    concurrency: Concurrency = 8,
    timeout: Timeout = 600.0,
    window: Window = None,
    tokenizer: TokenizerPath = None,
    trust_usage: TrustUsage = None,
    predict: Predict = False,
) -> Chosen:
    return Chosen(
        model=model,
        base_url=server_of(model, base_url),
        concurrency=concurrency,
        timeout=timeout,
        window=window,
        tokenizer=tokenizer,
        trust_usage=trust_usage,
        predict=predict,
        options=ReadingOptions(
            profile=profile,
            reader=reader,
            reader_options=_given(
                passages=passages, rounds=rounds, focus=focus, rereads=rereads, exit=exit, through_memory=through_memory
            ),
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


def _given(**options: Any) -> dict[str, Any]:
    """The options that are given."""
    return {name: value for name, value in options.items() if value is not None}


def sharing(
    name: str, make: Callable[..., Any], *, without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that replaces the parameter `name` of a command by the options of `make`, whose result it is given.

    Options `without` which the command does keep their defaults.
    """
    shared = {option: one for option, one in inspect.signature(make).parameters.items() if option not in without}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(make, include_extras=True) | get_type_hints(command, include_extras=True)
        own = inspect.signature(command).parameters
        merged = [
            one.replace(annotation=hints[one.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in own.values()
            for one in (shared.values() if parameter.name == name else [parameter])
        ]

        @wraps(command)
        def with_options(**values: Any) -> None:
            command(**{name: make(**{option: values.pop(option) for option in shared})}, **values)

        with_options.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]  # typer reads this
        with_options.__annotations__ = {one.name: one.annotation for one in merged}
        return with_options

    return decorate


# For commands that choose a model and how it reads, as `chosen`.
reads = sharing("chosen", _chosen)
# For one that reads with several readers.
reads_in_ways = sharing("chosen", _chosen, without=("reader",))


def only_a_server(chosen: Chosen) -> bool:
    """Whether nothing was chosen but how to reach a server."""
    names = ("base_url", "concurrency", "timeout", "tokenizer", "trust_usage", "predict")
    reached = {name: getattr(chosen, name) for name in names}
    return chosen == replace(_chosen(), **reached)
