"""Documents of numbered passages: the passages that a question needs, among distractors."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import Any

from memagent.core.types import Span, Tokenizer
from memagent.errors import TaskError
from memagent.scoring import normalize
from memagent.tasks.fitting import EXACT_TOKENS
from memagent.tasks.lazy_text import LazyText, Piece
from memagent.tasks.passages import PassageCounts, Passages
from memagent.tasks.questions import Question
from memagent.tasks.samples import Fact
from memagent.tasks.task import Materials
from memagent.tasks.words import Split, split_of

_TRIES = 8
_MOST_GIVEN_BACK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """A document of numbered passages with its facts, length and metadata."""

    document: LazyText
    facts: tuple[Fact, ...]
    tokens: int
    meta: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Passages by number. The last may be cut: it ends at `end` of the shared text."""

    numbers: list[int]
    end: int | None
    passages: Passages


class _Candidates:
    """The distractors of a question in the order in which they are taken: those that its file gives with it, those of its
    source, all others, each kind in random order; then synthetic articles without end."""

    def __init__(self, given: Passages, split: Split, question: Question, rng: random.Random, clean: bool) -> None:
        self._split = split
        self._given = given
        self._answers = question.answers if clean else ()
        taken = dict.fromkeys(question.gold)
        for kind in (question.context, question.related, range(len(given))):
            fresh = [number for number in kind if number not in taken]
            rng.shuffle(fresh)
            taken.update(dict.fromkeys(fresh))
        self._order = list(taken)[len(question.gold) :]

    def passages(self, count: int) -> Passages:
        """At least `count` passages, extended by synthetic ones if needed."""
        return self._given.grown(self._split, count)

    def __iter__(self) -> Iterator[int]:
        for number in chain(self._order, count(len(self._given))):
            if not self._answers or number not in self.passages(number + 1).holding(self._answers):
                yield number


def numbered(
    materials: Materials,
    given: Passages,
    question: Question,
    rng: random.Random,
    *,
    tokens: int = 0,
    articles: int = 0,
    clean: bool = False,
) -> Numbered:
    """The passages a question needs among distractors, shuffled: `articles` in all, or as many as make `tokens` tokens.

    To come within 1 % of `tokens`, one distractor may be cut at a space. No passage comes twice. clean=True leaves out
    distractors in which an answer stands. Raises TaskError if the needed passages alone are too many.
    """
    split = split_of(materials.words.nouns[0])
    candidates = _Candidates(given, split, question, rng, clean and not _is_verdict(question))
    arrange = rng.getrandbits(64)
    heading = materials.wording.heading + "\n"
    if articles:
        return _assembled(question, _first(candidates, question, articles), materials.tokenizer, heading, arrange)
    limit = tokens
    for _ in range(_TRIES):
        chosen = _filled(candidates, question, materials.tokenizer, heading, limit, slack=tokens // 125)
        if chosen is None:
            break
        made = _assembled(question, chosen, materials.tokenizer, heading, arrange)
        have = materials.tokenizer.count(str(made.document)) if tokens <= EXACT_TOKENS else made.tokens
        if tokens * 0.99 <= have <= tokens:
            return Numbered(document=made.document, facts=made.facts, tokens=have, meta=made.meta)
        limit += int(tokens * 0.997) - have
    raise TaskError(
        f"cannot make a document of {tokens} tokens from the {len(question.gold)} passages that question {question.id!r}"
        " needs and distractors: request more tokens"
    )


def _first(candidates: _Candidates, question: Question, articles: int) -> _Chosen:
    if articles < len(question.gold):
        raise TaskError(f"question {question.id!r} needs {len(question.gold)} articles, so {articles} are too few")
    numbers = list(question.gold)
    numbers += islice(candidates, articles - len(numbers))
    return _Chosen(numbers, None, candidates.passages(max(numbers) + 1))


def _filled(
    candidates: _Candidates, question: Question, tokenizer: Tokenizer, heading: str, limit: int, slack: int
) -> _Chosen | None:
    """Distractors in order until the first one that does not fit, which is cut. If that leaves more than `slack` tokens
    free, because not even its heading fits, the one before is given back and the next one takes its place."""
    passages = candidates.passages(0)
    counts = passages.counts(tokenizer, heading)
    numbers = list(question.gold)
    room = limit - sum(counts.tokens(number, slot) for slot, number in enumerate(numbers, 1))
    if room < 0:
        return None
    given_back = 0
    for number in candidates:
        if number >= len(passages):
            passages = candidates.passages(number + 1)
            counts = passages.counts(tokenizer, heading)
        cost = counts.tokens(number, len(numbers) + 1)
        if cost <= room:
            numbers.append(number)
            room -= cost
            continue
        span = passages.span(number)
        end = _cut(counts, passages.text, span, tokenizer, room - (cost - counts.tokens(number, 1)))
        free = room - (counts.measure(Span(start=span.start, end=end)) if end > span.start else 0)
        if free <= slack:
            cut = end > span.start
            return _Chosen(numbers + [number] * cut, end if cut else None, passages)
        if len(numbers) == len(question.gold) or given_back == _MOST_GIVEN_BACK:
            return None
        room += counts.tokens(numbers[-1], len(numbers))
        numbers.pop()
        given_back += 1
    return None


def _cut(counts: PassageCounts, text: str, span: Span, tokenizer: Tokenizer, room: int) -> int:
    """The offset before a space up to which a passage with its heading takes at most `room` tokens; its start if none."""
    ends = tokenizer.ends(text[span.start : span.end])
    keep = len(ends) - (counts.measure(span) - room)
    end = span.start + ends[keep - 1] if keep > 0 else span.start
    while end > span.start:
        end = max(text.rfind(" ", span.start, end), text.rfind("\n", span.start, end), span.start)
        if end > span.start and counts.measure(Span(start=span.start, end=end)) <= room:
            break
    return end


def _assembled(question: Question, chosen: _Chosen, tokenizer: Tokenizer, heading: str, arrange: int) -> Numbered:
    """Puts the chosen passages in the order that the number `arrange` makes of them."""
    passages, numbers = chosen.passages, chosen.numbers
    counts = passages.counts(tokenizer, heading)
    values = dict(zip(question.gold, question.values, strict=True))
    spans = [passages.span(number) for number in numbers]
    if chosen.end is not None:
        spans[-1] = Span(start=spans[-1].start, end=chosen.end)
    order = list(range(len(numbers)))
    random.Random(arrange).shuffle(order)
    pieces: list[Piece] = []
    facts: list[Fact] = []
    slots: list[int] = []
    size = tokens = 0
    for slot, place in enumerate(order, 1):
        head, span = counts.heading(slot), spans[place]
        pieces += (head, span)
        size += len(head)
        if (number := numbers[place]) in values:
            slots.append(slot)
            text, title = passages.text[span.start : span.end], passages[number].title
            facts.append(Fact(text=text, start=size, end=size + len(span), key=title, value=values[number]))
        size += len(span)
        whole = chosen.end is None or place < len(numbers) - 1
        tokens += counts.tokens(number, slot) if whole else counts.measure(span) + counts.extra(slot)
    meta = {
        **question.meta,
        "question": question.id,
        "articles": len(numbers),
        "gold_slots": slots,
        "distractors_with_answer": _misleading(question, chosen),
        "synthetic_articles": sum(number >= passages.real for number in numbers),
        "cut": chosen.end is not None,
    }
    return Numbered(document=LazyText(pieces, passages.text), facts=tuple(facts), tokens=tokens, meta=meta)


def _misleading(question: Question, chosen: _Chosen) -> int | None:
    """How many distractors hold an answer (None where the answer is yes or no, which says nothing)."""
    if _is_verdict(question):
        return None
    return len(chosen.passages.holding(question.answers).intersection(chosen.numbers).difference(question.gold))


def _is_verdict(question: Question) -> bool:
    return normalize(question.answers[0]) in ("yes", "no")
