"""Passages joined to one text, which all their documents share."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from memagent.core.types import Span, Tokenizer
from memagent.tasks.articles import article
from memagent.tasks.words import Split

# Synthetic articles are added in steps, so that documents of about the same size share one text.
_STEP = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A titled piece of text ("" for none)."""

    title: str
    text: str


class Passages:
    """Numbered passages as one text: each is its title, if it has one, a line end and its text.

    The first `real` of them come from files, the others are synthetic. `before` are passages that come first.
    """

    def __init__(self, passages: Iterable[Passage], before: Passages | None = None) -> None:
        blocks: list[str] = [before.text] if before else []
        self._starts: array[int] = array("Q", before._starts if before else ())
        self._bodies: array[int] = array("Q", before._bodies if before else ())
        self._ends: array[int] = array("Q", before._ends if before else ())
        size = len(before.text) + 2 if before else 0
        for passage in passages:
            head = passage.title + "\n" if passage.title else ""
            blocks.append(f"{head}{passage.text}")
            self._starts.append(size)
            self._bodies.append(size + len(head))
            self._ends.append(size + len(blocks[-1]))
            size = self._ends[-1] + 2
        self.text: str = "\n\n".join(blocks)
        self.real: int = before.real if before else len(self)
        self._lower = ""
        self._holding: dict[tuple[str, ...], set[int]] = {}  # of the last question's answers
        self._tokens: dict[tuple[str, int], int] = {}
        self._grown: dict[tuple[Split, int], Passages] = {}
        self._counts: dict[tuple[str, str], PassageCounts] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, number: int) -> Passage:
        span, body = self.span(number), self.body(number)
        return Passage(title=self.text[span.start : max(span.start, body.start - 1)], text=self.text[body.start : body.end])

    def __iter__(self) -> Iterator[Passage]:
        return (self[number] for number in range(len(self)))

    def span(self, number: int) -> Span:
        """The span of the whole passage in the text."""
        return Span(start=self._starts[number], end=self._ends[number])

    def body(self, number: int) -> Span:
        """The span of the passage without its title."""
        return Span(start=self._bodies[number], end=self._ends[number])

    def tokens(self, tokenizer: Tokenizer, number: int) -> int:
        """Tokens of a passage without its title; counted once."""
        key = tokenizer.name, number
        if key not in self._tokens:
            body = self.body(number)
            self._tokens[key] = tokenizer.count(self.text[body.start : body.end])
        return self._tokens[key]

    def grown(self, split: Split, count: int) -> Passages:
        """At least `count` passages: these, followed by synthetic articles if needed.

        Passage n is the same whatever the count.
        """
        if count <= len(self):
            return self
        extra = _STEP
        while len(self) + extra < count:
            extra *= 2
        if (split, extra) not in self._grown:
            made = (Passage(title=title, text=text) for title, text in (article(number, split) for number in range(extra)))
            self._grown[split, extra] = Passages(made, before=self)
        return self._grown[split, extra]

    def holding(self, texts: Sequence[str]) -> set[int]:
        """The numbers of the passages that contain one of the texts as whole words, ignoring case."""
        self._lower = self._lower or _lower(self.text)
        key = tuple(texts)
        if key not in self._holding:
            self._holding.clear()
            found = (place for text in texts for place in places(_lower(text), self._lower))
            self._holding[key] = {bisect_right(self._starts, place) - 1 for place in found}
        return self._holding[key]

    def counts(self, tokenizer: Tokenizer, heading: str) -> PassageCounts:
        """The token counts of the passages in a document with these headings, computed on first use."""
        return self._counts.setdefault((tokenizer.name, heading), PassageCounts(self, tokenizer, heading))


class PassageCounts:
    """Tokens of passages under numbered headings, each counted between its neighbours' headings.

    `heading` has the field {number}. A document's count is the sum over its passages, a few tokens too high at most.
    """

    def __init__(self, passages: Passages, tokenizer: Tokenizer, heading: str) -> None:
        self._passages = passages
        self._tokenizer = tokenizer
        self._heading = heading
        self._frame = "\n\n" + self.heading(1)
        self._frame_tokens = tokenizer.count(f"x{self._frame}")
        self._heading_tokens = tokenizer.count(f"x{self._frame}x")
        self._tokens = array("I", bytes(4 * len(passages)))
        self._extra: list[int] = [0, 0]

    def heading(self, number: int) -> str:
        """The heading of passage `number` of a document, from 1."""
        return ("\n\n" if number > 1 else "") + self._heading.format(number=number)

    def tokens(self, number: int, slot: int) -> int:
        """Tokens of passage `number` (of all passages) with the heading of place `slot` of a document."""
        if not self._tokens[number]:
            self._tokens[number] = self.measure(self._passages.span(number))
        return self._tokens[number] + self.extra(slot)

    def measure(self, span: Span) -> int:
        """Tokens of a piece of the passages' text with the heading of the first place."""
        block = self._passages.text[span.start : span.end]
        return self._tokenizer.count(f"x{self._frame}{block}{self._frame}") - self._frame_tokens

    def extra(self, slot: int) -> int:
        """The number of tokens by which the heading of a place is longer than the first."""
        while len(self._extra) <= slot:
            here = self._tokenizer.count(f"x{self.heading(len(self._extra))}x")
            self._extra.append(here - self._heading_tokens)
        return self._extra[slot]


def places(wanted: str, text: str, low: int = 0, high: int | None = None) -> Iterator[int]:
    """The place of `wanted` in [low, high) of `text` as whole words."""
    place = text.find(wanted, low, high) if wanted else -1
    while place >= 0:
        end = place + len(wanted)
        inside = (wanted[0].isalnum() and text[place - 1 : place].isalnum()) or (
            wanted[-1].isalnum() and text[end : end + 1].isalnum()
        )
        if not inside:
            yield place
        place = text.find(wanted, place + 1, high)


def stands_in(wanted: str, text: str) -> bool:
    """Whether `text` contains `wanted` as whole words, ignoring case."""
    return next(places(_lower(wanted), _lower(text)), None) is not None


def _lower(text: str) -> str:
    """Lower case at the same offsets: only the dotted capital I has a longer lower-case form."""
    return text.replace("\u0130", "I").lower()
