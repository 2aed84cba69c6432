"""Counts and locates tokens without a model: with a tokenizer file, by estimate, or with one token per byte."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from tokenizers import Tokenizer as RawTokenizer

from memagent.core.pieces import pieces
from memagent.errors import ConfigError

# Encoding all of a long text at once takes 150 bytes of memory for each of its bytes; blocks of this size take 60 MB.
_BLOCK_CHARS = 1 << 16


class FileTokenizer:
    """A model's own tokenizer. Counts are exact, without special tokens; text that looks like a special token ("<|end|>")
    is ordinary text. Texts over 64 K characters are counted in blocks, which may add a token for each block."""

    exact = True

    def __init__(self, raw: RawTokenizer, *, name: str) -> None:
        # Copies: these settings would change how the caller's tokenizer renders chats.
        self._special = _plain_copy(raw)
        self._raw = _plain_copy(raw)
        self._raw.encode_special_tokens = True
        special = [token.content for token in raw.get_added_tokens_decoder().values() if token.special]
        self._looks_special = re.compile("|".join(map(re.escape, special)) or "(?!)")
        self.name = name

    @classmethod
    def load(cls, path: str | Path) -> FileTokenizer:
        """From a tokenizer.json, or a folder that holds one. Raises ConfigError naming the file that cannot be used."""
        file = Path(path).expanduser()
        file = file / "tokenizer.json" if file.is_dir() else file
        try:
            data = file.read_bytes()
            raw = RawTokenizer.from_buffer(data)
        except Exception as error:  # the tokenizers package raises plain Exception for a malformed file
            raise ConfigError(f"{file} is not a usable tokenizer.json: {error}") from None
        return cls(raw, name=f"{file.parent.name}:{hashlib.sha256(data).hexdigest()[:12]}")

    def count(self, text: str) -> int:
        """How many tokens `text` is."""
        return _count(self._raw, text)

    def fewest(self, text: str) -> int:
        """The tokens of `text` for a server that treats text like a special token as one, as most do."""
        plain = self.count(text)
        return min(plain, _count(self._special, text)) if self._looks_special.search(text) else plain

    def ends(self, text: str) -> list[int]:
        """The character offset after each token; a token that holds part of a character ends after that character."""
        offsets: list[int] = []
        for start, block in pieces(text, _BLOCK_CHARS):
            [encoding] = self._raw.encode_batch([block], add_special_tokens=False)  # `encode` would stop other threads
            offsets.extend(start + end for _, end in encoding.offsets)
        return _tidy(offsets, len(text))


class EstimateTokenizer:
    """A conservative estimate, for models with an unknown tokenizer.

    ASCII: a token for every three letters of a word, for two capitals, for each digit, each mark, each two spaces. Other
    characters: a token for each byte of UTF-8, which byte-level vocabularies never exceed. Estimate over true count, for
    vocabularies of 50 K, 150 K and 32 K tokens (GPT-2, Qwen, an open LLaMA): English books 1.4 to 1.7; German, Polish and
    Finnish 0.9 to 1.2; Chinese, Japanese and Korean 1.0 to 4.9; source code 1.1 to 2.3; digits 1.0 to 1.8. Below the truth
    by up to a quarter: random letters such as base64, and indented code where the vocabulary has no runs of spaces.
    """

    name = "estimate-1"
    exact = False

    def count(self, text: str) -> int:
        """An estimate of how many tokens `text` is: the length of `ends`."""
        return sum(1 if piece.isascii() else len(piece.encode(errors="replace")) for piece in _PIECES.findall(text))

    def ends(self, text: str) -> list[int]:
        """The character offset after each estimated token."""
        ends: list[int] = []
        for match in _PIECES.finditer(text):
            if match.group().isascii():
                ends.append(match.end())
                continue
            for offset, character in enumerate(match.group(), match.start() + 1):
                ends.extend([offset] * len(character.encode(errors="replace")))
        return ends


_PIECES = re.compile(r" ?[A-Z]?[a-z]{1,3}| ?[A-Z]{1,2}| {1,2}|[\x00-\x7f]|[^\x00-\x7f]+")


class ByteTokenizer:
    """One token for each byte of UTF-8: for tests, examples and models over bytes."""

    name = "bytes"
    exact = True

    def count(self, text: str) -> int:
        """The number of bytes."""
        return len(text.encode(errors="replace"))

    def ends(self, text: str) -> list[int]:
        """The character offset after each byte; the bytes of one character all end after it."""
        if text.isascii():
            return list(range(1, len(text) + 1))
        return [offset for offset, character in enumerate(text, 1) for _ in range(len(character.encode(errors="replace")))]


def fewest_tokens(text: str) -> int:
    """A lower bound for real tokenizers: four fifths of the words, because few vocabularies cross spaces."""
    return len(re.findall(r"\w+", text)) * 4 // 5


def stretch(ends: Sequence[int], count: int, length: int) -> list[int]:
    """`count` non-decreasing offsets that follow the rhythm of `ends` and finish at `length`."""
    if not count:
        return []
    known = len(ends)
    return _tidy([ends[min(known - 1, (index + 1) * known // count)] for index in range(count)], length)


def _tidy(offsets: list[int], length: int) -> list[int]:
    """Non-decreasing, the last one `length`: normalizers may drop characters, and some offsets step back."""
    offsets = list(accumulate(offsets, max))
    if offsets:
        offsets[-1] = length
    return offsets


def _plain_copy(raw: RawTokenizer) -> RawTokenizer:
    copy: RawTokenizer = RawTokenizer.from_str(raw.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def _count(raw: RawTokenizer, text: str) -> int:
    """One block at a time, without the places of the tokens, and without stopping other threads."""
    blocks = (raw.encode_batch_fast([block], add_special_tokens=False) for _, block in pieces(text, _BLOCK_CHARS))
    return sum(len(encoding.ids) for [encoding] in blocks)
