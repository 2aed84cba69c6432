"""Splits a document into chunks, which are spans of the source text.

Laws (tested as properties): the chunks joined are the document, exactly; every chunk, tokenized on its own, holds at most
`limit` tokens; no chunk is empty. A cut prefers a place where a reader would pause (paragraph, sentence, line, word), as
long as it lies in the last eighth of the chunk, so that a fact is seldom split between two turns.

Why spans and not decoded token slices: a slice of token ids can split a character of several bytes, and decoding it gives
text that is not in the document. Why blocks: the text is read and tokenized a block at a time, so memory does not grow
with the document. Why threads: nearly all of the time goes into tokenizing, or into waiting for a server that does it.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise, takewhile
from typing import Any, TypeAlias, TypeVar, overload

from memagent.core.pieces import WORD_SEAM, pieces
from memagent.core.types import Span, Text, Tokenizer
from memagent.errors import ConfigError

MIN_CHUNK_TOKENS = 16
_BLOCK_CHARS = 1 << 16
_PIECE_CHARS = 1 << 13  # tokenized at a time
_MOST_THREADS = 8
# A cut may move back by this share of the chunk to reach a boundary.
_TAIL_SHARE = 8
# Boundaries, best first; each pattern ends just before the place to cut.
_BORDERS = (
    re.compile(r"\n[ \t]*\r?\n\s*"),
    re.compile(r"[.!?…。！？][\"'”’»)\]]*(?:\s+|(?<=[。！？]))"),
    re.compile(r"\n+"),
    re.compile(r"\s+"),
)
_Given = TypeVar("_Given")
_Made = TypeVar("_Made")
# Characters at each end of a chunk in which a place between two words is looked for.
_EDGE_CHARS = 256
# How many chunks, spread over the text, are counted to find out whether a tokenizer still counts as it did.
_COUNTED_AGAIN = 8
# Raise it when the same text, tokenizer and limit give other chunks than before: those that are kept are then cut again.
CUTTING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Characters [start, end) of a document, with `tokens` tokens when tokenized separately."""

    start: int
    end: int
    tokens: int

    @property
    def span(self) -> Span:
        return Span(start=self.start, end=self.end)


class Chunks(Sequence[Chunk]):
    """All chunks of a document in order, in twelve bytes each, so that a plan over gigabytes stays small."""

    def __init__(self, chunks: Iterable[Chunk] = (), blocks: Iterable[Sequence[Chunk]] = ()) -> None:
        self._ends, self._tokens = array("Q"), array("I")
        self._settled = 0
        self._add(chunks)
        for block in blocks:
            self._settled = len(self)
            self._add(block)
        self.tokens = sum(self._tokens)

    def _add(self, chunks: Iterable[Chunk]) -> None:
        if isinstance(chunks, Chunks):  # without making a value of each
            self._ends.extend(chunks._ends)
            self._tokens.extend(chunks._tokens)
            return
        for one in chunks:
            self._ends.append(one.end)
            self._tokens.append(one.tokens)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> Chunk: ...

    @overload
    def __getitem__(self, index: slice) -> list[Chunk]: ...

    def __getitem__(self, index: int | slice) -> Chunk | list[Chunk]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        place = range(len(self))[index]
        start = self._ends[place - 1] if place else 0
        return Chunk(start=start, end=self._ends[place], tokens=self._tokens[place])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chunks) and (self._ends, self._tokens) == (other._ends, other._tokens)

    def __hash__(self) -> int:
        return hash(self.digest())

    @property
    def settled(self) -> Chunks:
        """Those that were cut before the last block of the text. They stay as they are, whatever is added to it."""
        found = Chunks()
        found._ends, found._tokens = self._ends[: self._settled], self._tokens[: self._settled]
        found.tokens = sum(found._tokens)
        return found

    def shared(self, other: Chunks) -> int:
        """How many of the first chunks are the same in both."""
        pairs = zip(zip(self._ends, self._tokens, strict=True), zip(other._ends, other._tokens, strict=True), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def digest(self) -> str:
        """The SHA-256 of the ends of the chunks."""
        return hashlib.sha256(self._ends.tobytes()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values: the characters and the tokens of each, and how many are settled."""
        return {"characters": list(self._lengths()), "tokens": list(self._tokens), "settled": self._settled}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Chunks:
        """The chunks that `to_json` wrote. Raises ValueError, TypeError, KeyError or OverflowError for other values."""
        found = cls()
        found._ends, found._tokens = array("Q", accumulate(values["characters"])), array("I", values["tokens"])
        found.tokens, found._settled = sum(found._tokens), int(values["settled"])
        return found

    def hold(self, text: Text, tokenizer: Tokenizer, limit: int) -> bool:
        """Whether they are chunks of `text` as `cut` makes them, by their ends and by counting some of them: those that
        have the most and the fewest tokens for their length, and a few that are spread over the text."""
        count = len(self)
        if not count or count != len(self._tokens) or self._ends[-1] != len(text) or max(self._tokens) > limit:
            return False
        if not 0 <= self._settled <= count or min(self._lengths()) < 1:
            return False
        dense = [tokens / length for tokens, length in zip(self._tokens, self._lengths(), strict=True)]
        spread = (number * (count - 1) // (_COUNTED_AGAIN - 1) for number in range(_COUNTED_AGAIN))
        some = dict.fromkeys((dense.index(max(dense)), dense.index(min(dense)), *spread))
        return all(tokenizer.count(text.read(self[one].start, self[one].end)) == self[one].tokens for one in some)

    def _lengths(self) -> Iterator[int]:
        return (end - start for start, end in pairwise([0, *self._ends]))


# Gives the chunks of a text for a tokenizer and a limit: `cut`, or what knows them already.
Cutter: TypeAlias = Callable[[Text, Tokenizer, int], Chunks]


@dataclass(frozen=True, slots=True)
class _Each:
    """Yields what a function makes of each of several values, in as many threads."""

    pool: ThreadPoolExecutor
    threads: int

    def __call__(self, function: Callable[[_Given], _Made], values: Sequence[_Given]) -> Iterator[_Made]:
        alone = self.threads == 1 or len(values) == 1
        return map(function, values) if alone else self.pool.map(function, values)


def cut(text: Text, tokenizer: Tokenizer, limit: int, known: Chunks | None = None) -> Chunks:
    """All chunks of `text`. The first may be known: those that were settled when less of it was there, or all.

    Only the rest is tokenized, and the result is the same. Raises as `chunk`.
    """
    known = known or Chunks()
    start = known[-1].end if known else 0
    return known if start >= len(text) else Chunks(known, _blocks(text, tokenizer, limit, start))


def chunk(text: Text, tokenizer: Tokenizer, limit: int) -> Iterator[Chunk]:
    """Yields the chunks of `text`, in order, each at most `limit` tokens. Memory is bounded by one block.

    Raises ConfigError if `limit` is below MIN_CHUNK_TOKENS.
    """
    for block in _blocks(text, tokenizer, limit, 0):
        yield from block


def _blocks(text: Text, tokenizer: Tokenizer, limit: int, start: int) -> Iterator[list[Chunk]]:
    """Yields the chunks of each block from `start` on. What a block holds depends on its text alone, and on whether it is
    the last."""
    if limit < MIN_CHUNK_TOKENS:
        raise ConfigError(f"a chunk of {limit} tokens is too small: use at least {MIN_CHUNK_TOKENS}")
    position, size = start, len(text)
    usual = characters = max(_BLOCK_CHARS, 16 * limit, min(64 * limit, 8 * _BLOCK_CHARS))
    # A tokenizer that waits for a server takes more calls at once than there are cores.
    threads = min(_MOST_THREADS, getattr(tokenizer, "at_once", os.cpu_count() or 1))
    pool = ThreadPoolExecutor(threads, "memagent-cutting")
    try:
        while position < size:
            block = text.read(position, min(size, position + characters))
            found, consumed = list[Chunk](), 0
            for end, tokens in _cuts(block, tokenizer, limit, position + len(block) >= size, _Each(pool, threads)):
                found.append(Chunk(start=position + consumed, end=position + end, tokens=tokens))
                consumed = end
            yield found
            position += consumed
            # Very long tokens: if the whole block is less than one chunk, it is read again with more.
            characters = usual if consumed else 2 * characters
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # an interrupt does not wait for a server


def _cuts(block: str, tokenizer: Tokenizer, limit: int, last: bool, each: _Each) -> Iterator[tuple[int, int]]:
    """Yields (end, tokens) for every chunk that certainly ends within `block`, or for all of the last block."""
    offsets, parts = zip(*pieces(block, _PIECE_CHARS), strict=True)
    ends = array("Q")
    for offset, found in zip(offsets, each(tokenizer.ends, parts), strict=True):
        ends.extend(map(offset.__add__, found))
    count = _counter(block, ends, offsets, tokenizer)
    start = 0
    while planned := list(islice(_planned(block, ends, limit, last, start), each.threads)):
        counts = each(count, list(pairwise([start, *planned])))
        for planned_cut, tokens in zip(planned, counts, strict=True):
            cut, tokens = (planned_cut, tokens) if tokens <= limit else _fit(block, start, planned_cut, tokenizer, limit)
            yield cut, tokens
            start = cut
            if cut != planned_cut:
                break  # what follows begins elsewhere than planned


def _counter(
    block: str, ends: Sequence[int], offsets: Sequence[int], tokenizer: Tokenizer
) -> Callable[[tuple[int, int]], int]:
    """A function that gives the tokens of block[start:end] on its own. `ends` are those of the tokens of the block, which
    was tokenized in pieces that begin at `offsets`.

    Where the tokenizer keeps words apart, only the two ends of a chunk are tokenized again. From the first place between
    two words to the last, it has the tokens of the block, if every piece that begins there begins at such a place too.
    """
    joins = [offset for offset in offsets if not WORD_SEAM.match(block, offset)]

    def count(span: tuple[int, int]) -> int:
        start, end = span
        if getattr(tokenizer, "words_apart", False) and 2 * _EDGE_CHARS < end - start <= _BLOCK_CHARS:
            first = WORD_SEAM.search(block, start, start + _EDGE_CHARS)
            *_, last = [None, *WORD_SEAM.finditer(block, end - _EDGE_CHARS, end)]
            if first and last and bisect_right(joins, first.start()) == bisect_right(joins, last.start()):
                begin, stop = first.start(), last.start()
                inside = bisect_right(ends, stop) - bisect_right(ends, begin)
                return tokenizer.count(block[start:begin]) + inside + tokenizer.count(block[stop:end])
        return tokenizer.count(block[start:end])

    return count


def _planned(block: str, ends: Sequence[int], limit: int, last: bool, start: int) -> Iterator[int]:
    """Yields the ends of the chunks from `start` on, if each has as many tokens on its own as in the block."""
    first = bisect_right(ends, start) if start else 0  # the token where the chunk begins
    while start < len(block):
        if len(ends) - first > limit:
            start = _natural_cut(block, start, ends[first + limit - 1 - limit // _TAIL_SHARE], ends[first + limit - 1])
        elif last:
            start = len(block)
        else:
            return  # the next block may continue the rest
        yield start
        first = bisect_right(ends, start, first)


def _natural_cut(block: str, start: int, low: int, high: int) -> int:
    """The best place to cut in (low, high]: the last boundary of the best kind, or `high` at a whole character."""
    tail = block[low:high]
    for border in _BORDERS:
        found = [match.end() for match in border.finditer(tail)]
        if found:
            return _whole_character(block, start, low + found[-1])
    return _whole_character(block, start, max(high, start + 1))


def _fit(block: str, start: int, cut: int, tokenizer: Tokenizer, limit: int) -> tuple[int, int]:
    """Moves `cut` back until block[start:cut], tokenized separately, has at most `limit` tokens."""
    while (tokens := tokenizer.count(block[start:cut])) > limit:
        ends = tokenizer.ends(block[start:cut])
        cut = _whole_character(block, start, min(start + ends[limit - 1], cut - 1))
        if cut <= start:
            raise ConfigError(f"one character needs more than {limit} tokens of {tokenizer.name}: use larger chunks")
    return cut, tokens


def _whole_character(block: str, start: int, cut: int) -> int:
    """Moves `cut` back so that no combining sequence, joined emoji or CR-LF pair is split, if that leaves any text."""
    place = cut
    while start < place < len(block) and _continues(block[place - 1], block[place]):
        place -= 1
    return place if place > start else cut


def _continues(before: str, after: str) -> bool:
    return (
        unicodedata.category(after).startswith("M")  # combining marks and variation selectors
        or after == "\u200d"
        or before == "\u200d"
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
        or (before == "\r" and after == "\n")
    )


def split(text: Text, span: Span) -> tuple[Span, Span] | None:
    """Halves a span at the boundary nearest its middle; None for a single character. The halves join to the span."""
    if len(span) < 2:
        return None
    content = text.read(span.start, span.end)
    middle, reach = len(content) // 2, max(1, len(content) // 4)
    around = content[middle - reach : middle + reach]
    for border in _BORDERS:
        found = [middle - reach + match.end() for match in border.finditer(around)]
        found = [place for place in found if 0 < place < len(content)]
        if found:
            middle = min(found, key=lambda place: abs(place - len(content) // 2))
            break
    else:
        middle = _whole_character(content, 0, middle)
    cut = span.start + middle
    return Span(start=span.start, end=cut), Span(start=cut, end=span.end)
