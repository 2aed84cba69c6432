"""Counts and offsets: laws for every tokenizer, exactness for files, the margin of the estimate."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as RawTokenizer

from memagent.core.types import Tokenizer
from memagent.errors import ConfigError
from memagent.models.tokenizers import ByteTokenizer, EstimateTokenizer, FileTokenizer, fewest_tokens, stretch
from tests.models.tiny import write_tokenizer

BOOKS = sorted((Path(__file__).parents[2] / "data" / "books").glob("*.gz"))
TEXTS = [
    "",
    "a",
    "The house is blue, and its number is 1234.",
    "Naïve café in the straße: Москва, 東京, 한국어!",
    "👩‍💻 and 👍🏽 and 🇩🇪, e\u0301 (combining)",
    "def f(x):\r\n\treturn x  # 0x1F\n\n\n    end",
    "<|end|><|begin|> is only text <|reply|>",
    "\ufeff\u200b\x00 odd \ud800 ones",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def from_file(folder: Path) -> FileTokenizer:
    return FileTokenizer.load(folder)


@pytest.fixture(params=["file", "estimate", "bytes"])
def tokenizer(request: pytest.FixtureRequest, from_file: FileTokenizer) -> Tokenizer:
    return {"file": from_file, "estimate": EstimateTokenizer(), "bytes": ByteTokenizer()}[request.param]


def check_laws(tokenizer: Tokenizer, text: str) -> None:
    ends = list(tokenizer.ends(text))
    assert len(ends) == tokenizer.count(text)
    assert ends == sorted(ends)
    assert (ends[-1] == len(text) and ends[0] > 0) if text else ends == []


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_laws(tokenizer: Tokenizer, text: str) -> None:
    check_laws(tokenizer, text.replace("\ud800", "?") if isinstance(tokenizer, FileTokenizer) else text)


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_laws_for_any_text(text: str) -> None:
    for tokenizer in (EstimateTokenizer(), ByteTokenizer()):
        check_laws(tokenizer, text)


class TestFileTokenizer:
    def test_text_that_looks_special_is_ordinary(self, folder: Path, from_file: FileTokenizer) -> None:
        raw = RawTokenizer.from_file(str(folder / "tokenizer.json"))
        assert len(raw.encode("<|end|>").ids) == 1
        assert from_file.count("<|end|>") > 1
        assert from_file.fewest("<|end|>") == 1

    def test_the_tokenizer_handed_in_is_left_as_it_is(self, folder: Path) -> None:
        raw = RawTokenizer.from_file(str(folder / "tokenizer.json"))
        raw.enable_truncation(3)
        assert FileTokenizer(raw, name="n").count("the house on the hill is blue") > 3
        assert len(raw.encode("<|end|>").ids) == 1

    def test_a_token_inside_a_character_ends_after_it(self, from_file: FileTokenizer) -> None:
        ends = from_file.ends("a🙂b")
        assert set(ends) == {1, 2, 3}
        assert ends.count(2) > 1

    def test_offsets_mark_the_tokens_own_text(self, folder: Path, from_file: FileTokenizer) -> None:
        raw = RawTokenizer.from_file(str(folder / "tokenizer.json"))
        text = "the house on the hill is blue, 1234"
        pieces = [raw.decode([number]) for number in raw.encode(text).ids]
        ends = from_file.ends(text)
        assert [text[start:end] for start, end in zip([0, *ends], ends, strict=False)] == pieces

    def test_long_texts_in_blocks_count_as_whole(self, folder: Path, from_file: FileTokenizer) -> None:
        text = gzip.decompress(BOOKS[0].read_bytes()).decode()[:200_000]
        whole = RawTokenizer.from_file(str(folder / "tokenizer.json")).encode(text)
        assert from_file.count(text) == len(whole.ids)
        assert from_file.ends(text) == [end for _, end in whole.offsets]
        check_laws(from_file, "x" * 150_000)

    def test_name_says_which_file(self, folder: Path, from_file: FileTokenizer) -> None:
        assert from_file.name.startswith(f"{folder.name}:")
        assert FileTokenizer.load(str(folder / "tokenizer.json")).name == from_file.name

    def test_files_that_cannot_be_used(self, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.json").write_text("{}")
        for path in (tmp_path, tmp_path / "missing.json"):
            with pytest.raises(ConfigError, match=r"tokenizer\.json"):
                FileTokenizer.load(path)


class TestEstimate:
    def test_is_the_sum_of_its_rule(self) -> None:
        count = EstimateTokenizer().count
        assert [count(text) for text in ("cat", "house", " house", "NASA", "1234", "a-b", "    x")] == [1, 2, 2, 2, 4, 3, 3]
        assert [count(text) for text in ("é", "東", "🙂")] == [2, 3, 4]

    @pytest.mark.parametrize("book", BOOKS, ids=lambda path: path.name)
    def test_english_books_stay_on_the_safe_side(self, book: Path) -> None:
        """The usual vocabularies take 1.2 to 1.5 tokens a word for such texts."""
        text = gzip.decompress(book.read_bytes()).decode()[50_000:80_000]
        assert 1.6 < EstimateTokenizer().count(text) / len(text.split()) < 2.6

    def test_prefixes_never_count_more(self) -> None:
        text = "".join(random.Random(0).choices("abcXYZ 12\n.é東", k=400))
        counts = [EstimateTokenizer().count(text[:size]) for size in range(len(text) + 1)]
        assert counts == sorted(counts)


def test_fewest_tokens() -> None:
    assert fewest_tokens("") == 0
    assert fewest_tokens("one two three four five") == 4


@given(st.lists(st.integers(1, 500)), st.integers(0, 50), st.integers(1, 500))
def test_stretch(ends: list[int], count: int, length: int) -> None:
    known = sorted(min(end, length) for end in ends) or [length]
    result = stretch(known, count, length)
    assert len(result) == count
    assert result == sorted(result)
    assert not result or result[-1] == length
