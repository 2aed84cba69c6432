"""What a reading depends on besides document and question: gathered, checked, and written to the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from memagent.core import (
    AnswerForm,
    Budgets,
    Cutter,
    Plan,
    Profile,
    Ranker,
    Rules,
    Sampling,
    Text,
    budgets_for,
    cut,
    make_reader,
    plan_reading,
    profile_from_mapping,
    template_tokens,
    with_overrides,
)
from memagent.core.readers.kept import KeptReader
from memagent.core.readers.together import TogetherReader, list_of
from memagent.core.reading import options
from memagent.errors import ConfigError
from memagent.journal.redaction import strip_urls
from memagent.models.open import OpenModel
from memagent.profiles import load_profile
from memagent.ranking import bm25

if TYPE_CHECKING:
    from memagent.structured import SchemaSource

AUTO = "auto"
_BUDGETS = ("question", "chunk", "memory", "answer", "reasoning")
# The templates that `auto` may come to use: budgets have to hold the longest.
_AUTO_TEMPLATES = ("update", "note", "gated", "round", "merge", "answer")
# Settings that say where a served model is asked.
_ADDRESS = ("base_url", "identity")
# Windows up to this many tokens get the profile with few words, unless the model says what it wants.
_SMALL_WINDOW = 2048


class ReadingOptions(TypedDict, total=False):
    """What can be chosen of a reading; what is left out follows from the model.

    profile             a prompt profile, its name, or a TOML file
    reader              a name from `memagent readers`, of which "auto" chooses one; `reader_options` are its options
    …_tokens            budgets, in tokens of the model's tokenizer
    temperature, top_p  sampling; temperature 0 (the default) is greedy
    seed                of the sampling
    rules               how replies are handled: "careful" (the default) or "paper"
    schema              the answer is JSON that follows it: a JSON Schema as a mapping or a file, or a pydantic model
    """

    profile: str | Path | Profile | None
    reader: str
    reader_options: Mapping[str, Any] | None
    question_tokens: int | None
    chunk_tokens: int | None
    memory_tokens: int | None
    answer_tokens: int | None
    reasoning_tokens: int | None
    temperature: float
    top_p: float
    seed: int | None
    rules: Rules
    schema: SchemaSource | None


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
    reader: str = "memory"
    reader_options: Mapping[str, Any] = field(default_factory=dict)
    together: tuple[str, ...] = ()
    schema: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def reopened(self, opened: OpenModel) -> Settings:
        """The same settings with what another opening of the model says of itself, to be compared with these. Raises
        ModelUnavailableError if its server cannot be reached."""
        opened.check_reachable()
        address = self.base_url and strip_urls(opened.base_url or self.base_url)
        return replace(self, base_url=address, identity=opened.engine.identity, window=opened.engine.window)

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
                    "together": tuple(values.get("together", ())),
                }
            )
        except (KeyError, TypeError) as error:
            raise ConfigError(f"these settings were written by another version of memagent: {error}") from error


def same_served(begun: Mapping[str, Any], model: str | None, base_url: str | None) -> bool:
    """Whether a model is that of the stored settings `begun` because it is served under the same name, wherever its server
    is now (docs/decisions/0037)."""
    return bool(begun.get("base_url") and base_url and begun.get("model") == model)


def as_begun(
    settings: Mapping[str, Any], begun: Mapping[str, Any], model: str | None, base_url: str | None
) -> dict[str, Any]:
    """`settings` to compare with those that something was `begun` with: with their address, if the model is that one."""
    served = same_served(begun, model, base_url)
    return {**settings, **({name: begun.get(name) for name in _ADDRESS} if served else {})}


def make_settings(
    opened: OpenModel,
    *,
    model: str,
    base_url: str | None = None,
    tokenizer: str | None = None,
    may_be_away: bool = False,
    **chosen: Unpack[ReadingOptions],
) -> Settings:
    """Fills what was not chosen from the model's own defaults, then from its window.

    Raises ConfigError, and ModelUnavailableError if its server cannot be reached, since what would be assumed need not suit
    it. With `may_be_away`, it is assumed: no reading may begin with these settings.
    """
    engine = opened.engine
    profile = _profile(opened, chosen.get("profile"))
    reader, schema = chosen.get("reader", "memory"), chosen.get("schema")
    if reader == KeptReader.name:
        raise ConfigError(
            f"the reader {reader!r} goes on from another reading: ask one with --from ID (`reading.ask` in Python)"
        )
    settings = Settings(
        model=model,
        base_url=base_url,
        tokenizer=tokenizer,
        identity=engine.identity,
        window=engine.window,
        profile=profile,
        budgets=_budgets(opened, profile, chosen, _AUTO_TEMPLATES if reader == AUTO else make_reader(reader).templates),
        sampling=_sampling(chosen.get("temperature", 0.0), chosen.get("top_p", 1.0), chosen.get("seed", 0)),
        rules=_rules(chosen.get("rules", "careful")),
        reader=reader,
        reader_options=reader_options(opened, reader, chosen.get("reader_options")),
        schema=_schema(schema),
    )
    if not may_be_away:
        opened.check_reachable()
    return settings


def asked_together(settings: Settings, questions: Sequence[str], opened: OpenModel) -> tuple[Settings, str]:
    """The settings of one reading for several questions, and the question that stands for them.

    Raises ConfigError, with the sum, if a budget is too small for so many, or if their answers follow a schema.
    """
    if settings.schema:
        raise ConfigError(
            "an answer that follows a schema is for one question: leave out --together (`together` in Python),"
            " or the schema"
        )
    if settings.reader_options.get("exit"):
        raise ConfigError(
            "one reading for several questions goes to the end of the document: leave out --exit (`exit` in Python),"
            " or --together"
        )
    asked = list_of(questions, settings.profile, settings.budgets, opened.engine.tokenizer)
    return replace(settings, together=tuple(question.strip() for question in questions)), asked


def from_memory(settings: Settings, reading: str, memory: str, schema: SchemaSource | None = None) -> Settings:
    """The settings of a follow-up question: it is answered from the memory that a reading ended with."""
    return replace(
        settings,
        reader=KeptReader.name,
        reader_options={"reading": reading, "memory": strip_urls(memory)},
        together=(),
        schema=_schema(schema),
    )


def make_plan(
    text: Text, question: str, settings: Settings, opened: OpenModel, cutter: Cutter = cut, ranker: Ranker = bm25
) -> Plan:
    """The plan of one reading. The cutter may know the chunks of the text already, and the ranker its index.

    Raises ConfigError for a question, budgets or options that cannot work, TooLongError for a document that does not fit.
    """
    reader = make_reader(settings.reader, settings.reader_options)
    if settings.together:
        reader = TogetherReader(reader=reader, questions=settings.together, reads_as=settings.reader)
    return plan_reading(
        text,
        question,
        reader=reader,
        tokenizer=opened.engine.tokenizer,
        profile=settings.profile,
        budgets=settings.budgets,
        window=settings.window,
        overhead=opened.engine.overhead,
        sampling=settings.sampling,
        rules=settings.rules,
        ranker=ranker,
        form=_form(settings.schema),
        cutter=cutter,
    )


def _profile(opened: OpenModel, given: str | Path | Profile | None) -> Profile:
    chosen = given or opened.defaults.profile or _profile_for(opened.engine.window)
    if not isinstance(chosen, str | Path | Profile):
        raise ConfigError(f"profile is {chosen!r}; it must be the name of a profile, a TOML file, or a Profile")
    return chosen if isinstance(chosen, Profile) else load_profile(chosen)


def _budgets(opened: OpenModel, profile: Profile, chosen: ReadingOptions, templates: Sequence[str]) -> Budgets:
    engine, defaults = opened.engine, opened.defaults
    values: Mapping[str, Any] = {**chosen}
    given = {name: values.get(f"{name}_tokens") for name in _BUDGETS}
    if defaults.budgets:
        return with_overrides(with_overrides(Budgets(), **defaults.budgets.model_dump()), **given)
    template = template_tokens(profile, engine.tokenizer, engine.overhead, templates)
    return budgets_for(engine.window, template, max(map(profile.repeats, templates)), **given)


def _sampling(temperature: float, top_p: float, seed: int | None) -> Sampling:
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ConfigError(f"{name} is {value!r}; it must be a number")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise ConfigError(f"seed is {seed!r}; it must be an int, or None")
    if temperature != 0 and not 0.001 <= temperature <= 10:
        raise ConfigError(f"the temperature is {temperature}; it must be 0 (greedy), or between 0.001 and 10")
    if not 0 < top_p <= 1:
        raise ConfigError(f"top_p is {top_p}; it must be above 0 and at most 1")
    return Sampling(temperature=temperature, top_p=top_p, seed=seed)


def _rules(rules: Rules) -> Rules:
    if rules not in ("careful", "paper"):
        raise ConfigError(f"rules are {rules!r}; they must be 'careful' or 'paper'")
    return rules


def reader_options(opened: OpenModel, name: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """All options of the reader. A model that cannot answer from a text is shown it as a chunk, if nothing else is said."""
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"reader_options are {given!r}; they must be a mapping, such as {{'rounds': 2}}")
    if name == AUTO:
        if given:
            first = min(given, key=str)
            raise ConfigError(f"the reader 'auto' has no option {first!r}: name the reader that the option is for")
        return {}
    known = options(make_reader(name))
    usual = {"through_memory": not opened.defaults.direct} if "through_memory" in known else {}
    return options(make_reader(name, {**usual, **(given or {})}))


def _schema(given: SchemaSource | None) -> str:
    if given is None:
        return ""
    from memagent.structured import schema_text  # its library takes a moment to import

    return schema_text(given)


def _form(schema: str) -> AnswerForm | None:
    if not schema:
        return None
    from memagent.structured import json_form

    return json_form(schema)


def _profile_for(window: int | None) -> str:
    return "compact" if window is not None and window <= _SMALL_WINDOW else "default"
