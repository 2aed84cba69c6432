"""Opens models by name, folder or server."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from memagent.core.readers import READERS
from memagent.core.types import Engine, Tokenizer
from memagent.embedded import FOLDER as EMBEDDED
from memagent.errors import ConfigError, ModelError
from memagent.models.concurrency import AtOnce, most_of
from memagent.models.families import open_family
from memagent.models.usage import check_usage
from memagent.tables import problem


class BudgetDefaults(BaseModel):
    """Tokens by part. The defaults are the paper's."""

    model_config = ConfigDict(extra="forbid")

    question: int | None = None
    chunk: int | None = None
    memory: int | None = None
    answer: int | None = None
    reasoning: int | None = None


class Defaults(BaseModel):
    """Settings for reading with a model: `memagent.toml` in its folder. Every key is optional.

    profile            the name of a prompt profile
    window             tokens
    budgets            tokens by part
    direct             whether the model can answer from a text; false if it can only update a memory and answer from it
    family             the family of models that it belongs to
    readers            the readers that it was trained for; without this key, any
    auto               those that `auto` may choose, besides `memory`; without this key, any
    scope              what a narrow model answers, said where it finds no answer; it is also warned of where a memory is
                       asked another question
    speculate          whether the in-process engine first checks if the reply repeats the memory; worthwhile if most do
    tokens_per_second  document tokens read per second on the machine that the file names, for estimates
    """

    model_config = ConfigDict(extra="forbid")

    profile: str | None = None
    direct: bool = True
    family: str | None = None
    readers: list[str] | None = None
    auto: list[str] | None = None
    scope: str | None = None
    speculate: bool = False
    window: int | None = None
    budgets: BudgetDefaults | None = None
    tokens_per_second: float | None = None

    @field_validator("auto")
    @classmethod
    def _known(cls, names: list[str] | None) -> list[str] | None:
        if unknown := [name for name in names or () if name not in READERS]:
            raise ValueError(f"there is no reader {unknown[0]!r}; there are {', '.join(READERS)}")
        return names


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenModel:
    """An engine and its settings.

    `name`, `base_url` and `tokenizer` are what `open_model` opens the same model by: a journal keeps them. An engine of
    one's own has none.
    """

    engine: Engine
    defaults: Defaults = field(default_factory=Defaults)
    name: str | None = None
    base_url: str | None = field(default=None, repr=False)  # which may have a password in it
    tokenizer: str | None = None

    def check_reachable(self) -> None:
        """Raises ModelUnavailableError if readings depend on what a server says of itself, and it cannot be reached."""
        getattr(self.engine, "check_reachable", lambda: None)()

    def trained_for(self, reader: str) -> bool:
        """Whether the model was trained for a reader. A general model counts as trained for all."""
        return self.defaults.readers is None or reader in self.defaults.readers

    def suits(self, reader: str) -> bool:
        """Whether the reader `auto` may choose this one. A model may read more surely without some that it knows."""
        return self.trained_for(reader) and (self.defaults.auto is None or reader in self.defaults.auto)


class Narrowable(Engine, Protocol):
    """An engine that runs the model in process, so its window can be set."""

    window: int | None


def open_model(
    spec: str | Path = "embedded",
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    concurrency: AtOnce = 8,
    timeout: float = 600.0,
    window: int | None = None,
    tokenizer: str | None = None,
    device: str = "auto",
    usage: str = "check",
    predict: bool = False,
) -> OpenModel:
    """Opens a model: "embedded", a folder with weights, or a name served at `base_url`.

    `timeout` is in seconds per request. `window` is in tokens, for servers that do not report it. `tokenizer` is a
    folder or tokenizer.json that counts tokens for servers. `usage` says how to treat a server that counts too few
    prompt tokens: "check", "trust" (it cut the prompt) or "ignore". `predict` sends the old memory as a prediction of the
    new one, for providers that take predicted outputs. Raises ModelError or ConfigError that lists the
    alternatives.
    """
    if not isinstance(spec, str | Path):
        raise TypeError(
            f"a model is a name or a folder, and this is of type {type(spec).__name__}: an engine is given as"
            " OpenModel(engine=…), and what is open already as it is"
        )
    most_of(concurrency)
    check_usage(usage)
    if not timeout > 0:
        raise ConfigError(f"timeout is {timeout}; it must be more than 0 seconds")
    if window is not None and window < 1:
        raise ConfigError(f"a window of {window} tokens is too small: it must be at least 1, or left out")
    if base_url is not None:
        return _open_served(str(spec), base_url, api_key, concurrency, timeout, window, tokenizer, usage, predict)
    folder = model_folder(spec)
    if not folder.is_dir():
        raise ModelError(
            f"no model {str(spec)!r}: use 'embedded', a folder of weights, or a served name together with --base-url"
            " (`base_url` in Python)"
        )
    from memagent.models.local import LocalEngine

    if tokenizer is not None or predict:
        option = "a tokenizer" if tokenizer is not None else "a prediction of the memory"
        raise ConfigError(f"{option} is for a model at a server (base URL): {str(spec)!r} runs in this process")
    defaults = read_defaults(folder)
    engine = LocalEngine(
        folder,
        device=device,
        name="embedded" if spec == "embedded" else None,
        family=open_family(defaults.family),
        speculate=defaults.speculate,
    )
    name = "embedded" if spec == "embedded" else str(folder.absolute())
    opened = replace(narrowed(engine, defaults, window), name=name)
    if window is not None and opened.engine.window is not None and window > opened.engine.window:
        raise ConfigError(f"a window of {window:,} tokens is more than the {opened.engine.window:,} that the model has")
    return opened


def model_folder(spec: str | Path) -> Path:
    """The folder of an in-process model: "embedded", or a path."""
    return EMBEDDED if spec == "embedded" else Path(spec).expanduser()


def narrowed(engine: Narrowable, defaults: Defaults, window: int | None = None) -> OpenModel:
    """The engine with the window it is to be read with, in tokens: what is given or the model's default, and no more than
    its positions allow."""
    limit = window or defaults.window
    if limit is not None:
        engine.window = limit if engine.window is None else min(limit, engine.window)
    return OpenModel(engine=engine, defaults=defaults)


def open_tokenizer(spec: str) -> Tokenizer:
    """A tokenizer that counts tokens: "embedded", "estimate", "bytes", or a tokenizer.json or its folder.

    Raises ConfigError that says what can be given.
    """
    from memagent.models.tokenizers import ByteTokenizer, EstimateTokenizer, FileTokenizer

    if spec in ("estimate", "bytes"):
        return EstimateTokenizer() if spec == "estimate" else ByteTokenizer()
    path = model_folder(spec)
    if not path.exists():
        raise ConfigError(f"no tokenizer {spec!r}: use 'embedded', 'estimate', 'bytes', a tokenizer.json, or its folder")
    return FileTokenizer.load(path)


def read_defaults(folder: Path) -> Defaults:
    """The `memagent.toml` of a model folder; without the file, no settings. Raises ConfigError that names file and key."""
    path = folder / "memagent.toml"
    if not path.is_file():
        return Defaults()
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        if gone := sorted({"drafts", "memory_line"} & set(values)):
            raise ConfigError(
                f"{path}: {gone[0]!r} is no longer a key: a model made from the embedded one uses"
                ' family = "embedded" and speculate = true'
            )
        return Defaults.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{path}: {problem(error, Defaults)}") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def _open_served(
    spec: str,
    base_url: str,
    api_key: str | None,
    concurrency: AtOnce,
    timeout: float,
    window: int | None,
    tokenizer: str | None,
    usage: str,
    predict: bool,
) -> OpenModel:
    from memagent.models.openai_compatible import OpenAIEngine
    from memagent.models.tokenizers import FileTokenizer

    if spec == "embedded":
        raise ConfigError("a base URL needs the name of a served model: pass it too (--model, `model` in Python)")
    engine = OpenAIEngine(
        spec,
        base_url,
        api_key=api_key,
        concurrency=concurrency,
        timeout=timeout,
        window=window,
        tokenizer=FileTokenizer.load(tokenizer) if tokenizer is not None else None,
        usage=usage,
        predict=predict,
    )
    counted = str(Path(tokenizer).expanduser().absolute()) if tokenizer is not None else None
    return OpenModel(engine=engine, name=spec, base_url=base_url, tokenizer=counted)
