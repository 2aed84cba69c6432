"""Samples of every family that needs no question file, with small materials, made once for each tokenizer."""

from __future__ import annotations

from functools import cache
from typing import Any

from memagent.core.types import Tokenizer
from memagent.models.open import EMBEDDED
from memagent.models.tokenizers import ByteTokenizer, EstimateTokenizer, FileTokenizer
from memagent.tasks import counting, grid, needle, scattered, tracking, updates
from memagent.tasks.haystack import Haystack
from memagent.tasks.samples import Sample
from memagent.tasks.task import Materials, Request, Task
from memagent.tasks.words import shipped_words
from tests.helpers import WordTokenizer

FAMILIES = (needle, tracking, counting, scattered, grid, updates)
TASKS: dict[str, Task[Any]] = {task.name: task for family in FAMILIES for task in family.TASKS}
TOKENIZERS = ("words", "bytes", "estimate", "embedded")
# The shortest documents to test, in tokens, where 700 are too few.
_SHORTEST = {("scattered", "bytes"): 3500, ("scattered", "estimate"): 1200, ("scattered", "embedded"): 1200}
_SHORTEST |= {("cwe", "bytes"): 900}


def lengths(task: str, tokenizer: str) -> tuple[int, ...]:
    """A short length, one that is counted whole, one that is not."""
    return (_SHORTEST.get((task, tokenizer), 700), 4000, 40_000)


@cache
def tokenizer(name: str) -> Tokenizer:
    if name == "embedded":
        return FileTokenizer.load(EMBEDDED)
    return {"words": WordTokenizer, "bytes": ByteTokenizer, "estimate": EstimateTokenizer}[name]()


@cache
def materials(name: str = "words") -> Materials:
    return Materials(tokenizer=tokenizer(name), haystack=Haystack.shipped(), words=shipped_words("eval"))


def sample(
    task: str, tokens: int = 4000, *, seed: int = 1, index: int = 0, using: Materials | None = None, **options: Any
) -> Sample:
    found = TASKS[task]
    request = Request(tokens=tokens, seed=seed, index=index)
    return found.sample(using or materials(), request, found.options(options))
