"""Counts and locates tokens without a model: with a tokenizer file, by estimate, or with one token per byte."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as RawTokenizer

from memagent.core.pieces import WORD_SEAM, pieces
from memagent.errors import ConfigError

# Encoding all of a long text at once takes 150 bytes of memory for each of its bytes; blocks of this size take 60 MB.
_BLOCK_CHARS = 1 << 16
# Words of several scripts and cases, of which a splitting rule may treat some in another way.
_WORDS = "I won't say of the iPhone that Österreich and a Straße от Москвы до Киева της Αθήνας Xii NASA as is the end of it"
# 1 for a byte of UTF-8 that begins a character, 0 for one that goes on with it.
_BEGINS = bytes(byte & 0xC0 != 0x80 for byte in range(256))


class FileTokenizer:
    """A model's own tokenizer. Counts are exact, without special tokens; text that looks like a special token ("<|end|>")
    is ordinary text. Texts over 64 K characters are counted in blocks, which may add a token for each block.

    `words_apart`: as `Tokenizer` has it, for the byte-level kind whose splitting rule begins a token before a word's space.
    """

    exact = True

    def __init__(self, raw: RawTokenizer, *, name: str) -> None:
        # Copies: these settings would change how the caller's tokenizer renders chats.
        self._special = _plain_copy(raw)
        self._raw = _plain_copy(raw)
        self._raw.encode_special_tokens = True
        special = [token.content for token in raw.get_added_tokens_decoder().values() if token.special]
        self._looks_special = re.compile("|".join(map(re.escape, special)) or "(?!)")
        self._of_bytes = _of_bytes(self._raw)
        self.words_apart = self._of_bytes and _words_apart(self._raw)
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
        ends: list[int] = []
        for start, block in pieces(text, _BLOCK_CHARS):
            ends.extend(map(start.__add__, self._block_ends(block)) if start else self._block_ends(block))
        return ends

    def _block_ends(self, block: str) -> list[int]:
        """From the lengths of the tokens, if they are those of the text; else from the places that the library finds, which
        takes longer."""
        if self._of_bytes and (block.isascii() or self._raw.normalizer is None):
            [fast] = self._raw.encode_batch_fast([block], add_special_tokens=False)  # `encode` would stop other threads
            ends = list(accumulate(map(self._sizes.__getitem__, fast.ids)))
            if ends[-1:] == [len(block.encode())]:
                return ends if block.isascii() else character_ends(block, ends)
        [encoding] = self._raw.encode_batch([block], add_special_tokens=False)
        return _tidy([end for _, end in encoding.offsets], len(block))

    @cached_property
    def _sizes(self) -> Mapping[int, int]:
        """The bytes of each token of a byte-level vocabulary, where a character stands for a byte."""
        sizes = {number: len(token) for token, number in self._raw.get_vocab(with_added_tokens=False).items()}
        added = {number: len(token.content.encode()) for number, token in self._raw.get_added_tokens_decoder().items()}
        return sizes | added


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


def character_ends(text: str, byte_ends: Sequence[int]) -> list[int]:
    """The character that each offset in the bytes of `text` lies in or after: one inside a character counts as its end."""
    begun = [0, *accumulate(text.encode(errors="replace").translate(_BEGINS))]
    return [begun[min(end, len(begun) - 1)] for end in byte_ends]


def _of_bytes(raw: RawTokenizer) -> bool:
    """Whether it is of the byte-level kind of GPT-2, which adds nothing to a text."""
    rules = _rule(raw.pre_tokenizer)
    last = rules["pretokenizers"][-1] if rules.get("pretokenizers") else rules
    return last.get("type") == "ByteLevel" and not last["add_prefix_space"]


def _words_apart(raw: RawTokenizer) -> bool:
    """Whether tokens always begin with the space between two words: by added tokens, and by how some words are split."""
    added = [token for token in raw.get_added_tokens_decoder().values() if not token.special]
    if any(token.lstrip or token.rstrip or WORD_SEAM.search(token.content) for token in added):
        return False
    starts = {start for _, (start, _) in raw.pre_tokenizer.pre_tokenize_str(_WORDS)}
    seams = [match.start() for match in WORD_SEAM.finditer(_WORDS)]
    plain = _rule(raw.normalizer).get("type") in (None, "NFC")
    return plain and starts.issuperset(seams)


def _rule(part: Any) -> dict[str, Any]:
    """The settings of a part of a tokenizer; none if it has no such part."""
    return dict(json.loads(part.__getstate__())) if part else {}


def _plain_copy(raw: RawTokenizer) -> RawTokenizer:
    copy: RawTokenizer = RawTokenizer.from_str(raw.to_str())
    copy.post_processor = None  # it would take spaces off the places of tokens
    copy.no_truncation()
    copy.no_padding()
    return copy


def _count(raw: RawTokenizer, text: str) -> int:
    """One block at a time, without the places of the tokens, and without stopping other threads."""
    blocks = (raw.encode_batch_fast([block], add_special_tokens=False) for _, block in pieces(text, _BLOCK_CHARS))
    return sum(len(encoding.ids) for [encoding] in blocks)
