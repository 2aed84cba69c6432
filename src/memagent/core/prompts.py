"""Prompt profiles: the prompt templates of a reading, as named, versioned, plain data.

A template is a Python format string restricted to bare field names; a literal brace is doubled. Fields are filled in one
pass, so braces inside a question, a memory or a document are text and never a field.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from memagent.errors import ConfigError

AnswerFormat: TypeAlias = Literal["text", "boxed"]
Template: TypeAlias = Literal[
    "update",
    "answer",
    "direct",
    "note",
    "gated",
    "exit",
    "round",
    "merge",
    "query",
    "judge",
    "recall",
    "together",
    "structured",
    "retry",
    "invalid",
    "verify",
]

_FIELDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {  # template: required fields, optional fields
    "update": (frozenset({"question", "memory", "chunk"}), frozenset({"memory_tokens"})),
    "answer": (frozenset({"question", "memory"}), frozenset({"not_found"})),
    "direct": (frozenset({"question", "document"}), frozenset({"not_found"})),
    "note": (frozenset({"question", "memory", "chunk"}), frozenset({"memory_tokens"})),
    "round": (frozenset({"question", "memory", "chunk"}), frozenset({"memory_tokens", "nothing"})),
    "gated": (frozenset({"question", "memory", "chunk"}), frozenset({"memory_tokens", "nothing", "exit"})),
    "exit": (frozenset(), frozenset({"enough"})),
    "merge": (frozenset({"question", "memory", "notes"}), frozenset({"memory_tokens"})),
    "query": (frozenset({"question", "memory"}), frozenset({"enough"})),
    "judge": (frozenset({"question", "memory"}), frozenset({"asked", "enough"})),
    "recall": (frozenset({"question", "memory", "chunk", "recalled"}), frozenset({"memory_tokens", "wanted"})),
    "together": (frozenset({"questions"}), frozenset()),
    "structured": (frozenset({"question", "schema"}), frozenset()),
    "retry": (frozenset(), frozenset({"limit"})),
    "invalid": (frozenset({"mistake"}), frozenset({"limit"})),
    "verify": (frozenset({"question", "answer", "chunk"}), frozenset({"unsupported"})),
}
_MAY_REPEAT = frozenset({"question", "memory_tokens", "limit", "nothing", "enough", "wanted", "not_found", "unsupported"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The wording of a reading. A template may show {question} more than once; budgets count it as often.

    update        shown for every chunk: {question} {memory} {chunk}, optionally {memory_tokens}
    answer        shown at the end: {question} {memory}, optionally {not_found}
    direct        shown by --direct instead of both: {question} {document}, optionally {not_found}; empty: direct answers
                  are not offered
    note          shown instead of update by readers that append replies to the memory; the same fields. Empty: such readers
                  show `update` with an empty memory
    gated         shown instead of update by the reader `gated`: the same fields, {nothing}, and {exit}: the text of `exit`
                  where the reading may end early, else nothing
    exit          says how to end the reading early; may use {enough}
    round         shown for every chunk by the reader `parallel`, to take notes: the same fields as update, {nothing}
    merge         asks for one memory from several notes: {question} {memory} {notes}, optionally {memory_tokens}
    query         asks what to search the document for next: {question} {memory}, optionally {enough}
    judge         asks whether the memory is enough, or what to read the document again for: {question} {memory}, optionally
                  {asked}, the questions so far, and {enough}
    recall        shown instead of update by the reader `recall`: the same fields, {recalled} (an earlier memory) and
                  {wanted}
    together      stands for several questions that are asked in one reading: {questions}, a numbered list
    structured    stands for a question whose answer must have a form: {question} {schema}
    nothing       the fixed reply by which a model says that a chunk adds nothing
    enough        the fixed reply by which it says that the memory is enough to answer
    wanted        begins the line by which it asks for an earlier memory
    verify        asks for the passage of a chunk that supports an answer: {question} {answer} {chunk}, optionally
                  {unsupported}. Empty: the words of the answer are looked for instead
    not_found     the fixed answer by which a model says that the document does not hold one
    unsupported   the fixed reply by which it says that a chunk has no such passage
    retry         appended to a turn that is asked again, its reply having been empty or too long; may use {limit} (tokens)
    invalid       appended instead after an answer without the form that was asked for: {mistake}; may use {limit}
    empty_memory  stands for the memory before the first chunk
    answer_format "boxed": the answer is read from the last \\boxed{…} of the reply; "text": the reply is the answer
    """

    name: str
    version: int = 1
    description: str = ""
    system: str = ""
    empty_memory: str
    update: str
    answer: str
    direct: str = ""
    note: str = ""
    gated: str = ""
    exit: str = ""
    round: str = ""
    merge: str = ""
    query: str = ""
    judge: str = ""
    recall: str = ""
    together: str = ""
    structured: str = ""
    nothing: str = "nothing new"
    enough: str = "enough"
    wanted: str = "recall:"
    verify: str = ""
    not_found: str = "not found"
    unsupported: str = "no support"
    retry: str = ""
    invalid: str = ""
    answer_format: AnswerFormat = "text"

    def __post_init__(self) -> None:
        for template, (required, optional) in _FIELDS.items():
            value = getattr(self, template)
            if value or template in ("update", "answer"):
                _check(f"profile {self.name!r}, template {template!r}", value, required, required | optional)
        if self.answer_format not in ("text", "boxed"):
            raise ConfigError(f"profile {self.name!r}: answer_format is {self.answer_format!r}, not 'text' or 'boxed'")

    def needs(self, template: Template, what: str) -> None:
        """Raises ConfigError if the profile has no such template, which `what` ("the reader 'gated'") shows."""
        if not getattr(self, template):
            raise ConfigError(
                f"the profile {self.name!r} has no wording for {what}: its template {template!r} is empty;"
                f" choose a profile that has it, or do without {what}"
            )

    def wording(self, template: str) -> str:
        """A template with empty fields, numbers and fixed forms apart: what its turns have around question and text."""
        required, optional = _FIELDS[template]
        shown: dict[str, object] = {"memory_tokens": 9999, "limit": 9999, **self.forms}
        if "exit" in optional:
            shown["exit"] = self.wording("exit")
        return self.render(template, **{**dict.fromkeys(required | optional, ""), **shown})  # type: ignore[arg-type]

    def repeats(self, template: str) -> int:
        """How often a template shows the question again after the first time."""
        parsed = string.Formatter().parse(getattr(self, template))
        return max(0, [field for _, field, _, _ in parsed].count("question") - 1)

    @property
    def forms(self) -> dict[str, object]:
        """The fixed replies, by the fields that stand for them."""
        return {name: getattr(self, name) for name in ("nothing", "enough", "wanted", "not_found", "unsupported")}

    def render(self, template: Template, **values: object) -> str:
        """The template with its fields filled; the fixed forms fill themselves. Values are inserted as they are."""
        values = self.forms | values
        return "".join(
            literal + ("" if field is None else str(values[field]))
            for literal, field, _, _ in string.Formatter().parse(getattr(self, template))
        )


def profile_from_mapping(values: Mapping[str, object], source: str) -> Profile:
    """Builds a profile from parsed TOML or JSON. Raises ConfigError that names `source` and the invalid key."""
    known = {field.name: field for field in fields(Profile)}
    if unknown := sorted(set(values) - set(known)):
        raise ConfigError(f"{source}: unknown key {unknown[0]!r}; a profile has {', '.join(sorted(known))}")
    for key in ("name", "empty_memory", "update", "answer"):
        if key not in values:
            raise ConfigError(f"{source}: a profile needs {key!r}")
    for key, value in values.items():
        expected: type = int if key == "version" else str
        if not isinstance(value, expected):
            raise ConfigError(f"{source}: {key!r} must be a {expected.__name__}, not {type(value).__name__}")
    return Profile(**values)  # type: ignore[arg-type]


def _check(where: str, template: str, required: Iterable[str], allowed: Iterable[str]) -> None:
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigError(f"{where}: {error}; a literal brace is written twice") from None
    shown = [field for _, field, _, _ in parsed if field is not None]
    found = set(shown)
    if any(spec or conversion for _, field, spec, conversion in parsed if field is not None):
        raise ConfigError(f"{where}: fields take no format or conversion")
    if missing := sorted(set(required) - found):
        raise ConfigError(f"{where}: the field {{{missing[0]}}} is missing")
    if unknown := sorted(found - set(allowed)):
        raise ConfigError(f"{where}: unknown field {{{unknown[0]}}}; it may use {', '.join(sorted(allowed)) or 'none'}")
    if twice := sorted(field for field in found - _MAY_REPEAT if shown.count(field) > 1):
        raise ConfigError(
            f"{where}: the field {{{twice[0]}}} stands there more than once; of the texts, only {{question}} may"
        )
