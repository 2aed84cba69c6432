"""Where a memory leads: the chunks that have words which are new in it. No model is asked.

What was found is the next query, as in relevance feedback (Rocchio 1971). A memory is a better one than the passages that
it came from, because it was written to hold what the question needs. So a chain of facts is followed from name to name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import islice, takewhile

from memagent.core.reading import Plan
from memagent.core.types import UNSPACED
from memagent.errors import ConfigError

_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")


def check_ranker(plan: Plan, what: str) -> None:
    """Raises ConfigError if the plan has no ranker."""
    if plan.ranker is None:
        raise ConfigError(f"{what} needs a ranker: hand one to the plan, such as memagent.ranking.bm25")


def ranked(plan: Plan, query: str, read: Collection[int] = ()) -> Iterator[int]:
    """The numbers of the chunks that were not read, those that match a query best (the plan's ranker, BM25) first."""
    assert plan.ranker is not None
    left_out = set(read)
    numbers = plan.ranker(plan.text, [one.span for one in plan.chunks], query)
    return (number for number in numbers if number not in left_out)


def leads(plan: Plan, memory: str, known: str, most: int, read: Collection[int] = ()) -> tuple[str, tuple[int, ...]]:
    """The words of a memory that are neither in the question nor in `known`, and the chunks to look for them in.

    These are the chunks that have one of the words, without those in `read`; of more than `most`, the best. Their numbers
    are in document order.
    """
    known_words = _words(f"{plan.question} {known}")
    new = [word for word in _words(memory) if word not in known_words]
    query = " ".join(new)
    matching = takewhile(lambda number: _has(plan, number, new), ranked(plan, query, read)) if new else iter(())
    return query, tuple(sorted(islice(matching, most)))


def _has(plan: Plan, number: int, words: Collection[str]) -> bool:
    """Whether a chunk has one of the words."""
    span = plan.chunks[number].span
    return not _words(plan.text.read(span.start, span.end)).keys().isdisjoint(words)


def _words(text: str) -> dict[str, None]:
    """The words of a text, in order, each once; of scripts without spaces, the characters."""
    return dict.fromkeys(word.casefold() for word in _WORD.findall(text))
