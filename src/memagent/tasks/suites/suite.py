"""What every suite has: a name, the form of its records, and the exercises that a record gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from memagent.core.types import Span, Tokenizer
from memagent.errors import TaskError
from memagent.scoring import Mode
from memagent.tasks.haystack import Haystack
from memagent.tasks.lazy_text import LazyText
from memagent.tasks.samples import Fact

Record = TypeVar("Record", bound=BaseModel)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LETTER_ONLY = "Answer with the letter of the right choice and nothing else."


class SuiteRecord(BaseModel):
    """A record of an official file. Fields that are not needed are ignored."""

    model_config = ConfigDict(extra="ignore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """A document and a question, as a suite's file states it.

    `id` is unique in the file. `category` is what the suite groups its results by. `scorer` is a name that
    `memagent.suite_scoring.own_score` knows, and `meta` holds what it needs; what is None or "" there is left out. `tokens`
    is 0 if nobody counted.
    """

    id: str
    question: str
    document: LazyText
    answers: Sequence[str]
    scorer: str
    category: str = ""
    mode: Mode = "any"
    facts: Sequence[Fact] = ()
    tokens: int = 0
    seed: int | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hay:
    """What the needles of a suite are hidden in: texts, the length of documents in tokens, the number of depths."""

    texts: tuple[tuple[str, Haystack], ...]
    tokenizer: Tokenizer
    tokens: int
    depths: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a record stands: its number in the file from 1, and what is known of the file.

    `subset` is the part of the suite that the file holds, for suites whose records do not say; empty for the others.
    `length` is what the file's name says of the length, such as "4k"; empty if it says nothing.
    """

    number: int
    subset: str = ""
    length: str = ""
    seed: int = 0
    hay: Hay | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite(Generic[Record]):
    """A suite.

    file      the official file, in a few words, and where it comes from
    scorer    the names of its scorers
    official  whether they are the published ones, in a few words
    record    the form of a record
    exercises the exercises of a record
    subsets   the parts that a file may hold, if records do not say which
    shares    whether many exercises have the same document
    needs_hay whether documents are made from a haystack
    """

    name: str
    title: str
    file: str
    scorer: str
    official: str
    record: type[Record]
    exercises: Callable[[Record, Place], Iterable[Exercise]]
    subsets: tuple[str, ...] = ()
    shares: bool = False
    needs_hay: bool = False


def whole(text: str) -> LazyText:
    """A document that is all of a text."""
    return LazyText([Span(start=0, end=len(text))], text)


def with_choices(question: str, choices: Sequence[str]) -> str:
    """A question with its lettered choices, which asks for a letter."""
    if not 2 <= len(choices) <= len(LETTERS):
        raise TaskError(f"a question has 2 to {len(LETTERS)} choices, not {len(choices)}")
    listed = "\n".join(f"({letter}) {text.strip()}" for letter, text in zip(LETTERS, choices, strict=False))
    return f"{question.strip()}\n{listed}\n{LETTER_ONLY}"
