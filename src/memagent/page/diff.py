"""Two memories compared: lines that went and came, and in a line that was rewritten the words that differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Literal, TypeAlias

from rapidfuzz.distance import LCSseq

CHARACTERS, LINES = 12_000, 200  # the maximum of one comparison that is shown
_LINES = 2_000  # of each memory that are compared
_WORDS = 3_000  # of each line that are compared; in a longer one, all between its first and its last change is marked
_PAIRED = 30  # lines that went at one place, and that came, of which those that are alike are found
_LONG, _AROUND = 2_000, 200  # characters of a line of which not all is shown, and those on either side of its changes
_FEW = 24  # lines of a memory that is shown whole
_BESIDE = 2  # unchanged lines that are shown on either side of a change in a longer one
_ALIKE = 0.4  # the share of a line that stays if its words are worth comparing
_SHRED = 3  # characters of an unchanged piece between changes that is not worth telling apart
_WORD = re.compile(r"\s+|[^\W_]+|.", re.DOTALL)

Kind: TypeAlias = Literal["same", "old", "new", "fold"]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the comparison, as pieces of which some are marked. A fold says how much is left out."""

    kind: Kind
    pieces: tuple[tuple[str, bool], ...]

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


def compared(before: str, after: str) -> list[Line]:
    """The lines of both memories in the order of a diff, at most LINES of them with CHARACTERS in all.

    Memories that differ have something that shows it, if only a line that says in what.
    """
    old, new = before.splitlines(), after.splitlines()
    if old == new:
        return [*_settled(list(_same(old)), 0), *_fold(int(before != after), "only ends of lines differ", None)]
    head = _agreeing(old, new)
    tail = _agreeing(old[head:][::-1], new[head:][::-1])
    inner = [lines[head : len(lines) - tail] for lines in (old, new)]
    lines = [*_same(old[:head]), *_blocks(*(part[:_LINES] for part in inner))]
    rest = sum(max(0, len(part) - _LINES) for part in inner)
    return _settled([*lines, *_same(old[len(old) - tail :] if not rest else ())], rest and rest + tail)


def _settled(lines: Sequence[Line], rest: int) -> list[Line]:
    """The lines in bounds; `rest`: how many more there are."""
    long = len(lines) > _FEW or sum(len(line.text) for line in lines) > CHARACTERS
    return list(_bounded(_folded(lines) if long else lines, rest))


def _same(texts: Iterable[str]) -> Iterator[Line]:
    return (Line("same", ((text, False),)) for text in texts)


def _agreeing(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of items at the beginning that agree."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _blocks(old: Sequence[str], new: Sequence[str]) -> Iterator[Line]:
    gone: list[str] = []
    come: list[str] = []
    for code in LCSseq.opcodes(old, new):
        before, after = old[code.src_start : code.src_end], new[code.dest_start : code.dest_end]
        if code.tag == "equal":
            yield from _rewritten(gone, come)
            gone, come = [], []
            yield from _same(before)
        else:
            gone += before
            come += after
    yield from _rewritten(gone, come)


def _rewritten(gone: Sequence[str], come: Sequence[str]) -> Iterator[Line]:
    """Lines that went and came at one place: those that are alike one below the other, all in their order."""
    here, there = 0, 0
    for one, other in [*_alike(gone[:_PAIRED], come[:_PAIRED]), (len(gone), len(come))]:
        yield from (Line("old", ((text, False),)) for text in gone[here:one])
        yield from (Line("new", ((text, False),)) for text in come[there:other])
        if one < len(gone) and other < len(come):
            yield from _pair(gone[one], come[other])
        here, there = one + 1, other + 1


def _alike(gone: Sequence[str], come: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of lines that have enough words in common, in order; of all ways to pair them, the one with most in common."""
    words = [
        [Counter(islice((found[0] for found in _WORD.finditer(text)), _WORDS)) for text in side] for side in (gone, come)
    ]
    best = [[0.0] * (len(come) + 1) for _ in range(len(gone) + 1)]
    worth = [[_common(one, other) for other in words[1]] for one in words[0]]
    for one in reversed(range(len(gone))):
        for other in reversed(range(len(come))):
            paired = worth[one][other] + best[one + 1][other + 1] if worth[one][other] >= _ALIKE else 0.0
            best[one][other] = max(paired, best[one + 1][other], best[one][other + 1])
    pairs, one, other = list[tuple[int, int]](), 0, 0
    while one < len(gone) and other < len(come):
        if best[one][other] == best[one + 1][other]:
            one += 1
        elif best[one][other] == best[one][other + 1]:
            other += 1
        else:
            pairs.append((one, other))
            one, other = one + 1, other + 1
    return pairs


def _common(one: Counter[str], other: Counter[str]) -> float:
    """The share of two lines that is in both, by their words, from 0 to 1."""
    shared = sum(len(word) * min(count, other[word]) for word, count in one.items() if word in other)
    return shared / max(1, *(sum(len(word) * count for word, count in side.items()) for side in (one, other)))


def _pair(old: str, new: str) -> Iterator[Line]:
    before, after = _WORD.findall(old), _WORD.findall(new)
    if max(len(before), len(after)) > _WORDS:
        head = _agreeing(old, new)
        tail = _agreeing(old[head:][::-1], new[head:][::-1])
        before, after = (_parts(text, head, tail) for text in (old, new))
    codes = LCSseq.opcodes(before, after)
    gone = [("".join(before[code.src_start : code.src_end]), code.tag != "equal") for code in codes]
    come = [("".join(after[code.dest_start : code.dest_end]), code.tag != "equal") for code in codes]
    if sum(len(text) for text, changed in gone if not changed) < _ALIKE * max(len(old), len(new)):
        gone, come = [(old, False)], [(new, False)]
    yield Line("old", _shortened(_whole(gone)))
    yield Line("new", _shortened(_whole(come)))
    if old.split() == new.split():
        yield from _fold(1, "only white space differs", None)


def _parts(text: str, head: int, tail: int) -> list[str]:
    return [text[:head], text[head : len(text) - tail], text[len(text) - tail :]]


def _shortened(pieces: Sequence[tuple[str, bool]]) -> tuple[tuple[str, bool], ...]:
    """Of a long line, unchanged pieces with their middle left out, so that its changes are seen."""
    if sum(len(text) for text, _ in pieces) <= _LONG or not any(changed for _, changed in pieces):
        return tuple(pieces)
    return tuple(
        (text if changed or len(text) <= 3 * _AROUND else f"{text[:_AROUND]} … {text[-_AROUND:]}", changed)
        for text, changed in pieces
    )


def _whole(pieces: Iterable[tuple[str, bool]]) -> tuple[tuple[str, bool], ...]:
    """Pieces of one kind put together; shreds between changes belong to the change."""
    found: list[tuple[str, bool]] = []
    parts = [piece for piece in pieces if piece[0]]
    for place, (text, changed) in enumerate(parts):
        inside = 0 < place < len(parts) - 1 and parts[place - 1][1] and parts[place + 1][1]
        changed = changed or (inside and len(text) <= _SHRED)
        if found and found[-1][1] == changed:
            found[-1] = (found[-1][0] + text, changed)
        else:
            found.append((text, changed))
    return tuple(found)


def _folded(lines: Sequence[Line]) -> Iterator[Line]:
    """The lines, with long runs of unchanged ones left out."""
    near = set[int]()
    for place, line in enumerate(lines):
        if line.kind != "same":
            near.update(range(place - _BESIDE, place + _BESIDE + 1))
    hidden = 0
    for place, line in enumerate(lines):
        if place not in near:
            hidden += 1
            continue
        yield from _fold(hidden, "unchanged line")
        hidden = 0
        long = line.kind == "same" and len(line.text) > 3 * _AROUND
        yield Line("same", ((f"{line.text[:_AROUND]} … {line.text[-_AROUND:]}", False),)) if long else line
    yield from _fold(hidden, "unchanged line")


def _bounded(lines: Iterable[Line], rest: int) -> Iterator[Line]:
    """Lines with CHARACTERS in all; none has more than half of them, so that of a long line both versions are seen."""
    room, left = CHARACTERS, rest
    for number, line in enumerate(lines):
        most = min(room, CHARACTERS // 2)
        if number >= LINES or room <= 0:
            left += 1
        elif len(line.text) > most:
            yield from _beginning(line, most)
            left += 1
            room -= most
        else:
            yield line
            room -= len(line.text) + 1
    yield from _fold(left, "line cut or left out", "lines cut or left out")


def _beginning(line: Line, room: int) -> Iterator[Line]:
    pieces: list[tuple[str, bool]] = []
    for text, changed in line.pieces:
        pieces.append((text[:room], changed))
        room -= min(room, len(text))
    yield Line(line.kind, tuple(piece for piece in pieces if piece[0]))


def _fold(count: int, what: str, several: str | None = "") -> Iterator[Line]:
    if count:
        number = "" if several is None else f"{count:,} "
        yield Line("fold", ((f"… {number}{what if count == 1 else several or what + 's'} …", False),))
