"""Tokenizers of the usual families: which keep words apart, and that the fast ways to count and to cut change nothing."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from memagent.core import chunking
from memagent.core.chunking import chunk
from memagent.models.tokenizers import FileTokenizer
from tests.helpers import StringText
from tests.models.tiny import LLAMA3_SPLIT

BOOK = gzip.decompress((Path(__file__).parents[2] / "data/books/federalist_papers.md.gz").read_bytes()).decode()
O200K_SPLIT = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SUPERWORDS_SPLIT = r"\p{L}+(?: \p{L}+)?| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+"


def of_bytes(split: str) -> pre_tokenizers.Sequence:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


APART = {
    "gpt-2": (None, pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "llama-3": (None, of_bytes(LLAMA3_SPLIT)),
    "o200k": (None, of_bytes(O200K_SPLIT)),
    "qwen": (normalizers.NFC(), of_bytes(LLAMA3_SPLIT.replace("{1,3}", ""))),
}
JOINED = {
    "prefix-space": (None, pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "superwords": (None, of_bytes(SUPERWORDS_SPLIT)),
    "sentencepiece": (normalizers.Replace(" ", "▁"), None),
    "metaspace": (None, pre_tokenizers.Metaspace()),
    "lower-case": (normalizers.Lowercase(), of_bytes(LLAMA3_SPLIT)),
    "added-words": (None, of_bytes(LLAMA3_SPLIT)),
    "added-with-space": (None, of_bytes(LLAMA3_SPLIT)),
}
ADDED = {"added-words": AddedToken("the of", normalized=False), "added-with-space": AddedToken("of", rstrip=True)}
RULES = APART | JOINED
TEXTS = st.text(alphabet="aeB tn.\n\r'1²_é\u0301дЖ—東", max_size=400) | st.lists(
    st.sampled_from(
        [
            "the ",
            "of",
            " the",
            "I'll ",
            "  \n",
            "\n\n",
            "\r\n",
            " 12345",
            "<|end|>",
            "café ",
            " Киев",
            "東京",
            "!\n/",
            "_a ",
        ]
    ),
    max_size=80,
).map("".join)


@cache
def made(rule: str) -> tuple[FileTokenizer, Tokenizer]:
    """A tokenizer of that rule, trained here, and the same one of the library, without what is done after it."""
    raw = Tokenizer(models.BPE(unk_token="<|unk|>"))
    raw.normalizer, raw.pre_tokenizer = RULES[rule]
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1500, special_tokens=["<|end|>", "<|unk|>"], initial_alphabet=alphabet, show_progress=False
    )
    raw.train_from_iterator(BOOK[:60_000].splitlines(keepends=True), trainer)
    raw.add_tokens([AddedToken("    ", normalized=False), ADDED.get(rule, "Жд")])
    raw.encode_special_tokens = True
    plain = Tokenizer.from_str(raw.to_str())
    plain.encode_special_tokens = True
    if rule in ("gpt-2", "llama-3", "lower-case"):
        raw.post_processor = processors.ByteLevel(trim_offsets=rule != "gpt-2")  # as GPT-2 and Llama 3 have it
    return FileTokenizer(raw, name=rule), plain


def check(rule: str, text: str, limit: int = 16) -> None:
    """Every chunk has the tokens that the library itself counts, and tokens end where it says that they end."""
    tokenizer, raw = made(rule)
    for one in chunk(StringText(text), tokenizer, limit):
        assert one.tokens == len(raw.encode(text[one.start : one.end], add_special_tokens=False).ids)
    places = [end for _, end in raw.encode(text, add_special_tokens=False).offsets]
    ends = [max(places[: number + 1]) for number in range(len(places))]
    assert tokenizer.ends(text) == [*ends[:-1], len(text)] if ends else tokenizer.ends(text) == []


@pytest.mark.parametrize("rule", RULES)
def test_which_keep_words_apart(rule: str) -> None:
    assert made(rule)[0].words_apart is (rule in APART)


@pytest.mark.parametrize("rule", RULES)
def test_a_book_is_counted_as_the_library_counts(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunking, "_PIECE_CHARS", 3000)  # so that chunks reach over pieces
    check(rule, BOOK[100_000:160_000], limit=300)


@pytest.mark.parametrize("rule", RULES)
@given(text=TEXTS)
@settings(max_examples=60, deadline=None)
def test_any_text_is_counted_as_the_library_counts(rule: str, text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunking, "_PIECE_CHARS", 30)
        patch.setattr(chunking, "_EDGE_CHARS", 6)
        check(rule, text)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("digits", range(40, 44))
def test_a_chunk_over_a_seamless_border_of_pieces(rule: str, digits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunking, "_PIECE_CHARS", 30)
    monkeypatch.setattr(chunking, "_EDGE_CHARS", 12)
    check(rule, "of the " + "7" * digits + " of all the people", limit=80)


def test_a_normal_form_of_the_same_length_does_not_hide_what_moved() -> None:
    check("qwen", "e\u0301 the e\u0301 people and \u0344 of", limit=80)  # shorter, shorter, longer by as much


def test_a_chunk_that_is_counted_in_blocks_has_the_tokens_of_that_count() -> None:
    tokenizer, _ = made("gpt-2")

    class InBlocks:
        name, exact, words_apart, ends = tokenizer.name, True, True, staticmethod(tokenizer.ends)

        def count(self, text: str) -> int:
            return tokenizer.count(text) + len(text) // 65_536  # a token more for a block, as it may be

    [one] = chunk(StringText(BOOK[:100_000]), InBlocks(), 100_000)
    assert one.tokens == InBlocks().count(BOOK[:100_000])


def test_only_the_ends_of_chunks_are_tokenized_again() -> None:
    """The reason for `words_apart`: a book costs little more than one tokenization."""
    tokenizer, _ = made("gpt-2")
    counted = []

    class Counted:
        name, exact, words_apart, ends = tokenizer.name, True, True, staticmethod(tokenizer.ends)

        def count(self, text: str) -> int:
            counted.append(len(text))
            return tokenizer.count(text)

    text = BOOK[:200_000]
    cut = list(chunk(StringText(text), Counted(), 300))
    assert cut == list(chunk(StringText(text), tokenizer, 300))
    assert sum(counted) < len(text) / 5
