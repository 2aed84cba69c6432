"""What a task is, and what it is made from. One `Task` value for each name; the families are modules beside this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from memagent.core.types import Tokenizer
from memagent.errors import TaskError
from memagent.tables import finding
from memagent.tasks.haystack import Haystack
from memagent.tasks.questions import QuestionSet
from memagent.tasks.samples import Sample
from memagent.tasks.wording import OURS, Wording
from memagent.tasks.words import Words

Options = TypeVar("Options")


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """What samples are made from: the same for all samples of a file.

    `questions` are those of a question file, for tasks that need one; `wording` is ours, or that of a RULER checkout.
    """

    tokenizer: Tokenizer
    haystack: Haystack
    words: Words
    wording: Wording = OURS
    questions: QuestionSet | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Which sample to make: number `index` under `seed`, with a document of at most `tokens` tokens."""

    tokens: int
    seed: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[Options]):
    """A named way to make samples.

    `make` is a function of its arguments alone: the same ones give the same sample on every machine. `defaults` is a frozen
    dataclass of options. `questions` says that it needs a question file.
    """

    name: str
    summary: str
    make: Callable[[Materials, Request, Options], Sample]
    defaults: Options
    questions: bool = False

    def options(self, given: Mapping[str, Any]) -> Options:
        """The defaults with what was given in their place; texts are converted. Raises TaskError naming the option."""
        values = {item.name: getattr(self.defaults, item.name) for item in fields(self.defaults)}  # type: ignore[arg-type]
        if unknown := sorted(set(given) - set(values)):
            known = ", ".join(values) or "none"
            raise TaskError(f"task {self.name!r} has no option {unknown[0]!r}; its options: {known}")
        try:
            return TypeAdapter(type(self.defaults)).validate_python(values | dict(given))
        except ValidationError as error:
            place, said = finding(error)
            where = f", option {place}" if place else ""  # without a place the options are wrong together
            raise TaskError(f"task {self.name!r}{where}: {said}") from error

    def sample(self, materials: Materials, request: Request, options: Options | None = None) -> Sample:
        """One sample. Raises TaskError if it cannot be made as asked."""
        if request.tokens < 1:
            raise TaskError(f"a document of {request.tokens} tokens cannot be made: ask for at least 1")
        if self.questions and materials.questions is None:
            raise TaskError(f"task {self.name!r} needs a question file: give one with --questions")
        return self.make(materials, request, self.defaults if options is None else options)
