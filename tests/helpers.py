"""Small doubles of the ports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from memagent.core import Completion, Plan, State, Turn, advance, pending, split, turn

_WORD = re.compile(r"\s*\S+|\s+$")


class StringText:
    """A Text over a string that remembers its longest read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.longest_read = 0

    def __len__(self) -> int:
        return len(self.text)

    def read(self, start: int, end: int) -> str:
        self.longest_read = max(self.longest_read, end - start)
        return self.text[start:end]


class WordTokenizer:
    """A token is a word with the white space before it: counts depend on where a text begins, as real ones do."""

    name = "words"
    exact = True

    def count(self, text: str) -> int:
        return len(self.ends(text))

    def ends(self, text: str) -> Sequence[int]:
        return [match.end() for match in _WORD.finditer(text)]


class SpreadTokenizer:
    """Counts, and spreads the ends evenly, as is done with a server that returns counts alone: where a token ends depends
    on all of the text that is counted with it."""

    name = "spread"
    exact = False

    def count(self, text: str) -> int:
        return len(text) // 2 + sum(text.count(vowel) for vowel in "aeiou") + 1 if text else 0

    def ends(self, text: str) -> Sequence[int]:
        count = min(len(text), self.count(text))
        return [len(text) * number // count for number in range(1, count + 1)]


def next_turn(plan: Plan, state: State) -> Turn | None:
    """The first pending turn, or None if there is none."""
    return next((turn(plan, state, id) for id in pending(plan, state)), None)


def replied(plan: Plan, state: State, reply: str | Completion) -> State:
    """The state after a reply to the first pending turn."""
    completion = reply if isinstance(reply, Completion) else Completion(text=reply)
    return advance(plan, state, next(iter(pending(plan, state)), "none"), completion)


def halved(plan: Plan, state: State) -> State:
    """The state after the first pending turn did not fit the window."""
    return split(plan, state, next(iter(pending(plan, state))))


def raw_tokenizer(folder: Path) -> Tokenizer:
    """A folder's tokenizer for content: text that spells a special token is text, never the token."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    return tokenizer
