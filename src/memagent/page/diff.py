"""Two memories compared: lines that went and came, and in a line that was rewritten the words that differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rapidfuzz.distance import LCSseq

CHARACTERS, LINES = 12_000, 200  # the maximum of one comparison that is shown
_LINES = 2_000  # of each memory that are compared
_WORDS = 3_000  # of each line that are compared
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
    """The lines of both memories in the order of a diff, at most LINES of them with CHARACTERS in all."""
    old, new = before.splitlines()[:_LINES], after.splitlines()[:_LINES]
    lines = [line for part in _blocks(old, new) for line in part]
    return list(_bounded(_folded(lines) if len(lines) > _FEW else lines))


def _blocks(old: Sequence[str], new: Sequence[str]) -> Iterator[list[Line]]:
    gone: list[str] = []
    come: list[str] = []
    for code in LCSseq.opcodes(old, new):
        before, after = old[code.src_start : code.src_end], new[code.dest_start : code.dest_end]
        if code.tag == "equal":
            yield _rewritten(gone, come)
            gone, come = [], []
            yield [Line("same", ((text, False),)) for text in before]
        else:
            gone += before
            come += after
    yield _rewritten(gone, come)


def _rewritten(gone: Sequence[str], come: Sequence[str]) -> list[Line]:
    """Lines that went and came at one place; those that are alike side by side, in their order."""
    both = min(len(gone), len(come))
    lines = [line for pair in zip(gone, come, strict=False) for line in _pair(*pair)]
    lines += [Line("old", ((text, False),)) for text in gone[both:]]
    return lines + [Line("new", ((text, False),)) for text in come[both:]]


def _pair(old: str, new: str) -> tuple[Line, Line]:
    before, after = _WORD.findall(old), _WORD.findall(new)
    if max(len(before), len(after)) <= _WORDS:
        codes = LCSseq.opcodes(before, after)
        same = sum(len("".join(before[code.src_start : code.src_end])) for code in codes if code.tag == "equal")
        if same >= _ALIKE * max(len(old), len(new)):
            gone = [("".join(before[code.src_start : code.src_end]), code.tag != "equal") for code in codes]
            come = [("".join(after[code.dest_start : code.dest_end]), code.tag != "equal") for code in codes]
            return Line("old", _whole(gone)), Line("new", _whole(come))
    return Line("old", ((old, False),)), Line("new", ((new, False),))


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
        yield line
    yield from _fold(hidden, "unchanged line")


def _bounded(lines: Iterable[Line]) -> Iterator[Line]:
    room, left = CHARACTERS, 0
    for number, line in enumerate(lines):
        if left or number >= LINES or len(line.text) > room:
            if room and not left and number < LINES:
                yield from _beginning(line, room)
            left += 1
            continue
        room -= len(line.text) + 1
        yield line
    yield from _fold(left, "line cut or left out", "lines cut or left out")


def _beginning(line: Line, room: int) -> Iterator[Line]:
    pieces: list[tuple[str, bool]] = []
    for text, changed in line.pieces:
        pieces.append((text[:room], changed))
        room -= min(room, len(text))
    yield Line(line.kind, tuple(piece for piece in pieces if piece[0]))


def _fold(count: int, what: str, several: str = "") -> Iterator[Line]:
    if count:
        yield Line("fold", ((f"… {count:,} {what if count == 1 else several or what + 's'} …", False),))
