"""Text to hide facts in: one long base text, known sentence borders, and known token counts."""

from __future__ import annotations

import gzip
import random
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import cast

from memagent.core.types import Span, Tokenizer
from memagent.errors import TaskError
from memagent.tasks.text_kinds import TEXT_KINDS, TextKind, text_of
from memagent.tasks.words import Split

# A place to insert a sentence: after the end of a sentence and the space or line end behind it.
_SENTENCE_END = re.compile(r"(?<!\bMr)(?<!\bMrs)(?<!\bDr)(?<!\bSt)[.!?][\"'”’)]*\s+(?=[\"'“‘(A-Z])")
_LINE_END = re.compile(r"\n")
_SPACE = re.compile(r"\s")
# Places where common tokenizers do not join the text before and after.
_SEAM = re.compile(r"(?<=[A-Za-z.,;])(?= [A-Za-z])|(?<=\n)(?=\S)")
_GENERATED = "generated:"
_GENERATED_CHARS = 300_000
_BLOCK_CHARS = 1 << 16
_EXCERPT = 200  # characters by which a text is recognised
_AROUND = 64  # characters on each side of a join that can change its tokens


class Haystack:
    """Texts joined to one base text, which repeats after its end. Short texts are repeated in advance (unless `repeat` is
    False), so that a long document does not have thousands of pieces.

    `borders` are the offsets where a sentence (with lines=True: a line) may be inserted, 0 first. `joint` separates an
    inserted one from the following text. `lined` are more texts, in which a sentence may begin any line.
    """

    def __init__(
        self, texts: Sequence[str], *, lines: bool = False, repeat: bool = True, lined: Sequence[str] = ()
    ) -> None:
        kept = [text.strip() + ("\n" if lines else "\n\n") for text in texts if text.strip()]
        if not kept and not lined:
            raise TaskError("a haystack needs at least one non-empty text")
        text = "".join(kept)
        text = text * max(1, _BLOCK_CHARS // len(text)) if repeat and text else text
        self.text = text + "".join(one.strip() + "\n\n" for one in lined)
        self.joint = "\n" if lines else " "
        ends = (_LINE_END if lines else _SENTENCE_END).finditer(self.text, 0, len(text))
        more = _LINE_END.finditer(self.text, len(text))
        places = [*(match.end() for match in ends), *([len(text)] if lined else []), *(match.end() for match in more)]
        self.borders = array("Q", [0, *(place for place in places if 0 < place < len(self.text))])
        self._indexes: dict[str, TokenIndex] = {}

    @classmethod
    def load(cls, paths: Sequence[Path | str], split: Split = "eval") -> Haystack:
        """Reads UTF-8 files: .txt, .md, or the same gzipped. "generated:KIND" is generated text, with the words of `split`.
        Raises TaskError that names the file; in training also for the text that evaluation uses."""
        texts = []
        for path in [path for path in paths if not is_generated(path)]:
            texts.append(read_text(Path(path)))
            if split == "train" and is_of_evaluation(texts[-1]):
                raise TaskError(f"{path} is *Moby-Dick*, in which memagent evaluates: train in another text")
        return cls(texts, lined=[_generated(str(path), split) for path in paths if is_generated(path)])

    @classmethod
    def shipped(cls) -> Haystack:
        """*Moby-Dick*, which training never sees (public domain in the United States)."""
        return cls([_moby_dick()])

    def index(self, tokenizer: Tokenizer) -> TokenIndex:
        """The token counts of the base text, made once for each tokenizer."""
        return self._indexes.setdefault(tokenizer.name, TokenIndex(self.text, tokenizer))

    def start(self, rng: random.Random) -> int:
        """A random border."""
        return self.borders[rng.randrange(len(self.borders))]

    def window(self, rng: random.Random, chars: int, word: str = "") -> str:
        """At least `chars` characters from a random border on, to a space. They begin shortly before `word` where
        the text has it."""
        place = self.start(rng)
        if word:
            found = self.text.find(word, place)
            found = self.text.find(word) if found < 0 else found
            if found >= 0:
                place = self.borders[max(0, bisect_right(self.borders, found - rng.randrange(chars // 2 + 1)) - 1)]
        pieces = [self.text[place : place + chars]]
        have = len(pieces[0])
        while have < chars:
            place = 0
            pieces.append(self.text[: chars - have])
            have += len(pieces[-1])
        end = place + len(pieces[-1])
        tail = _SPACE.search(self.text, end)
        return "".join([*pieces, self.text[end : tail.start() if tail else len(self.text)]])

    def take(self, tokenizer: Tokenizer, start: int, tokens: int, slack: int = 0) -> tuple[list[Span], int]:
        """Spans of the base text from `start` on, over its end to its beginning if need be, that hold at most `tokens`
        tokens; and how many they hold.

        They end before white space if that gives up no more than `slack` tokens, else anywhere.
        """
        index, size = self.index(tokenizer), len(self.text)
        spans: list[Span] = []
        used = 0
        while used < tokens:
            used += index.joined() if spans else 0
            end = index.advance(start, tokens - used)
            if end < size and not self.text[end].isspace():
                low = index.advance(start, tokens - used - slack)
                space = max(self.text.rfind(" ", low, end), self.text.rfind("\n", low, end))
                end = space if space > start else end
            if end == start:
                break
            used += index.count(start, end)
            spans.append(Span(start=start, end=end))
            if end < size:
                break
            start = 0
        return spans, used

    def nearest_border(self, offset: int, low: int, high: int) -> int:
        """The border nearest to `offset` within [low, high], or an end of the range if it is nearer."""
        place = bisect_left(self.borders, offset)
        near = [border for border in self.borders[max(0, place - 1) : place + 1] if low <= border <= high]
        return min([*near, low, high], key=lambda border: abs(border - offset))


class TokenIndex:
    """The ends of the tokens of a long text. Blocks are tokenized on first use and then cached.

    The count of a span may be off by one at each end, where the span cuts a token.
    """

    def __init__(self, text: str, tokenizer: Tokenizer) -> None:
        self._text = text
        self._tokenizer = tokenizer
        self._ends: dict[int, array[int]] = {}
        self._cuts: dict[int, int] = {}
        self._joined: int | None = None

    def count(self, start: int, end: int) -> int:
        """Tokens of the characters [start, end)."""
        return sum(high - low for _, low, high in self._blocks(start, end))

    def joined(self) -> int:
        """The additional tokens of a repetition after the end of the text: 0, or slightly negative."""
        if self._joined is None:
            tail, head = self._text[-_AROUND:], self._text[:_AROUND]
            count = self._tokenizer.count
            self._joined = count(tail + head) - count(tail) - count(head)
        return self._joined

    def advance(self, start: int, tokens: int) -> int:
        """The offset up to which the text from `start` on holds at most `tokens` tokens."""
        if tokens < 1:
            return start
        for number, low, high in self._blocks(start, len(self._text)):
            if high - low >= tokens:
                ends, first, place = self._block(number), self._cut(number), low + tokens - 1
                if place + 1 < len(ends) and ends[place + 1] == ends[place]:  # in the middle of a character
                    place = bisect_left(ends, ends[place]) - 1
                return first + ends[place] if place >= low else max(start, first)
            tokens -= high - low
        return len(self._text)

    def _blocks(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(block, first token, token after the last) for the blocks that [start, end) touches."""
        number = start // _BLOCK_CHARS
        if number and self._cut(number) > start:
            number -= 1
        while self._cut(number) < end:
            ends, first = self._block(number), self._cut(number)
            low = bisect_right(ends, start - first) if start > first else 0
            high = bisect_right(ends, end - first) if end < self._cut(number + 1) else len(ends)
            yield number, low, high
            number += 1

    def _block(self, number: int) -> array[int]:
        if number not in self._ends:
            ends = self._tokenizer.ends(self._text[self._cut(number) : self._cut(number + 1)])
            self._ends[number] = array("I", ends)
        return self._ends[number]

    def _cut(self, number: int) -> int:
        """Where a block begins: at a seam just before a multiple of the block size."""
        if number not in self._cuts:
            place = min(number * _BLOCK_CHARS, len(self._text))
            if 0 < place < len(self._text):
                seams = [match.start() for match in _SEAM.finditer(self._text, max(0, place - 4096), place)]
                place = seams[-1] if seams else place
            self._cuts[number] = place
        return self._cuts[number]


def is_generated(path: Path | str) -> bool:
    """Whether this stands for generated text, and not for a file."""
    return str(path).startswith(_GENERATED)


def _generated(name: str, split: Split) -> str:
    kind = name.removeprefix(_GENERATED)
    if kind not in TEXT_KINDS:
        raise TaskError(f"no text of the kind {kind!r} can be generated; there are {', '.join(TEXT_KINDS)}")
    return text_of(cast(TextKind, kind), _GENERATED_CHARS, split)


def read_text(path: Path) -> str:
    """A text file, gzipped or not. Line ends become "\\n". Raises TaskError that names the file."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return raw.decode("utf-8").replace("\r\n", "\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: cannot be read as UTF-8 text: {error}") from error


def is_of_evaluation(text: str) -> bool:
    """Whether a text is *Moby-Dick*, in which memagent evaluates, or a part of it: whether an excerpt from the middle of
    one of its quarters is there, however its lines end."""
    places = [len(text) * eighth // 8 for eighth in (1, 3, 5, 7)]
    excerpts = [" ".join(text[place : place + _EXCERPT].split()) for place in places]
    return any(2 * len(one) > _EXCERPT and one in _moby_dick_in_one_line() for one in excerpts)


def _moby_dick() -> str:
    packed = files("memagent.tasks").joinpath("data", "moby_dick.txt.gz").read_bytes()
    return gzip.decompress(packed).decode("utf-8").replace("\r\n", "\n")


@cache
def _moby_dick_in_one_line() -> str:
    return " ".join(_moby_dick().split())


def sentence_borders(text: str) -> list[int]:
    """Offsets at which a sentence may be inserted; 0 and the end are always among them."""
    inner = [match.end() for match in _SENTENCE_END.finditer(text)]
    return [0, *(place for place in inner if 0 < place < len(text)), len(text)]
