"""What a reading depends on besides document and question: gathered, checked, and written to the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from memagent.core import (
    Budgets,
    Chunks,
    Plan,
    Profile,
    Rules,
    Sampling,
    Text,
    Write,
    budgets_for,
    plan_reading,
    profile_from_mapping,
    template_tokens,
    with_overrides,
)
from memagent.errors import ConfigError
from memagent.models.open import OpenModel
from memagent.profiles import load_profile

# Windows up to this many tokens get the profile with few words, unless the model says what it wants.
_SMALL_WINDOW = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that decides a reading's turns, apart from document and question. JSON in and out, without secrets."""

    model: str
    base_url: str | None
    tokenizer: str | None  # a file that a served model's tokens are counted with
    identity: str
    window: int | None
    profile: Profile
    budgets: Budgets
    sampling: Sampling
    rules: Rules
    direct: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def reopened(self, opened: OpenModel) -> Settings:
        """The same settings with what another opening of the model says of itself, to be compared with these."""
        return replace(self, identity=opened.engine.identity, window=opened.engine.window)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Settings:
        """The settings that `to_json` wrote. Raises ConfigError if they are of another version."""
        try:
            return cls(
                **{
                    **values,
                    "profile": profile_from_mapping(values["profile"], "the journal"),
                    "budgets": Budgets(**values["budgets"]),
                    "sampling": Sampling(**values["sampling"]),
                }
            )
        except (KeyError, TypeError) as error:
            raise ConfigError(f"these settings were written by another version of memagent: {error}") from error


def make_settings(
    opened: OpenModel,
    *,
    model: str,
    base_url: str | None = None,
    tokenizer: str | None = None,
    profile: str | Path | Profile | None = None,
    question_tokens: int | None = None,
    chunk_tokens: int | None = None,
    memory_tokens: int | None = None,
    answer_tokens: int | None = None,
    reasoning_tokens: int | None = None,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int | None = 0,
    rules: Rules = "careful",
    direct: bool = False,
) -> Settings:
    """Fills what was not given from the model's own defaults, then from its window. Raises ConfigError."""
    if temperature != 0 and not 0.001 <= temperature <= 10:
        raise ConfigError(f"the temperature is {temperature}; it must be 0 (greedy), or between 0.001 and 10")
    if not 0 < top_p <= 1:
        raise ConfigError(f"top_p is {top_p}; it must be above 0 and at most 1")
    if rules not in ("careful", "paper"):
        raise ConfigError(f"rules are {rules!r}; they must be 'careful' or 'paper'")
    engine, defaults = opened.engine, opened.defaults
    chosen = profile or defaults.profile or _profile_for(engine.window)
    worded = chosen if isinstance(chosen, Profile) else load_profile(chosen)
    if profile is None or profile == defaults.profile:
        worded = replace(worded, memory_line=defaults.memory_line or worded.memory_line)
    base = (
        with_overrides(Budgets(), **defaults.budgets.model_dump())
        if defaults.budgets
        else budgets_for(engine.window, template_tokens(worded, engine.tokenizer, engine.overhead))
    )
    budgets = with_overrides(
        base,
        question=question_tokens,
        chunk=chunk_tokens,
        memory=memory_tokens,
        answer=answer_tokens,
        reasoning=reasoning_tokens,
    )
    return Settings(
        model=model,
        base_url=base_url,
        tokenizer=tokenizer,
        identity=engine.identity,
        window=engine.window,
        profile=worded,
        budgets=budgets,
        sampling=Sampling(temperature=temperature, top_p=top_p, seed=seed),
        rules=rules,
        direct=direct,
    )


def make_plan(
    text: Text,
    question: str,
    settings: Settings,
    opened: OpenModel,
    chunks: Chunks | None = None,
    write: Write = "overwrite",
) -> Plan:
    """The plan of one reading. `chunks` re-uses the cut of another question's plan over the same text."""
    return plan_reading(
        text,
        question,
        tokenizer=opened.engine.tokenizer,
        profile=settings.profile,
        budgets=settings.budgets,
        window=settings.window,
        overhead=opened.engine.overhead,
        sampling=settings.sampling,
        rules=settings.rules,
        direct=settings.direct,
        write=write,
        chunks=chunks,
    )


def _profile_for(window: int | None) -> str:
    return "compact" if window is not None and window <= _SMALL_WINDOW else "default"
