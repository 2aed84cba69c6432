"""Tasks and the materials that samples are made from. There is one `Task` value for each name, in a module per family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from memagent.core.types import Tokenizer
from memagent.errors import TaskError
from memagent.tables import finding
from memagent.tasks.haystack import Haystack
from memagent.tasks.questions import Form, QuestionSet
from memagent.tasks.samples import Sample
from memagent.tasks.wording import OURS, Wording
from memagent.tasks.words import Words

Options = TypeVar("Options")


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """What all samples of a file are made from.

    `questions` come from a question file, for tasks that need one. `wording` is ours, or that of a RULER checkout.
    `haystack` is None where the samples are for training and no text was given: the one of the package is for evaluation.
    """

    tokenizer: Tokenizer
    haystack: Haystack | None
    words: Words
    wording: Wording = OURS
    questions: QuestionSet | None = None

    @property
    def text(self) -> Haystack:
        """The text that facts are hidden in, for a task that needs one. Raises TaskError if there is none."""
        if self.haystack is None:
            raise TaskError(
                "this task hides its facts in a text, and *Moby-Dick*, which comes with the package, is for evaluation:"
                " give another text with --haystack FILE, or --haystack generated:KIND"
            )
        return self.haystack

    def question_set(self, task: str, form: Form, description: str) -> QuestionSet:
        """The questions, for a task that needs them. Raises TaskError if there are none, or if their form is another."""
        if self.questions is None:
            raise TaskError(f"task {task!r} needs a question file: give one with --questions")
        if self.questions.form != form:
            given = self.questions
            raise TaskError(f"task {task!r} needs {description}, but {given.name} has the form {given.form!r}")
        return self.questions


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Which sample to make: number `index` under `seed`, with a document of at most `tokens` tokens."""

    tokens: int
    seed: int
    index: int


@cache
def _adapter(options: type) -> TypeAdapter[Any]:
    return TypeAdapter(options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[Options]):
    """A named way to make samples.

    `make` is a pure function: the same arguments give the same sample on every machine. `defaults` is a frozen dataclass of
    options; its class may have a mapping `renamed` from former names of options to the current ones. `questions` is true
    if the task needs a question file.
    """

    name: str
    summary: str
    make: Callable[[Materials, Request, Options], Sample]
    defaults: Options
    questions: bool = False

    def options(self, given: Mapping[str, Any]) -> Options:
        """The defaults, replaced by the given values; strings are converted. Raises TaskError that names the option."""
        values = {item.name: getattr(self.defaults, item.name) for item in fields(self.defaults)}  # type: ignore[arg-type]
        if unknown := sorted(set(given) - set(values)):
            name, known = unknown[0], ", ".join(values) or "none"
            if current := getattr(self.defaults, "renamed", {}).get(name):
                raise TaskError(f"task {self.name!r}: the option {name!r} is now named {current!r}")
            raise TaskError(f"task {self.name!r} has no option {name!r}; its options: {known}")
        try:
            kind: type = type(self.defaults)
            options: Options = _adapter(kind).validate_python(values | dict(given))
            return options
        except ValidationError as error:
            place, said = finding(error)
            where = f", option {place}" if place else ""  # no place: the combination of options is wrong
            raise TaskError(f"task {self.name!r}{where}: {said}") from error

    def sample(self, materials: Materials, request: Request, options: Options | None = None) -> Sample:
        """One sample. Raises TaskError if it cannot be made as requested."""
        if request.tokens < 1:
            raise TaskError(f"cannot make a document of {request.tokens} tokens: the minimum is 1")
        return self.make(materials, request, self.defaults if options is None else options)
