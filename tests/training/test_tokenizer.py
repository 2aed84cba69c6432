"""The byte-level BPE: everything comes back, content never becomes a special token."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from memagent.training.tokenizer import SPECIALS, save_tokenizer, train_tokenizer
from tests.helpers import raw_tokenizer

LINES = ["The code of the old harbour is 4821973.\n", "Nobody knew why.\n"] * 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(train_tokenizer(iter(LINES), 320), path, window=64)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return raw_tokenizer(folder)


@given(text=st.text())
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("name", SPECIALS)
def test_content_cannot_spell_a_special_token(tokenizer: Tokenizer, name: str) -> None:
    special = {tokenizer.token_to_id(one) for one in SPECIALS}
    assert special == {0, 1, 2, 3}
    assert not special & set(tokenizer.encode(f"a{name}b {name}").ids)


def test_digits_come_in_groups_of_three(tokenizer: Tokenizer) -> None:
    offsets = tokenizer.encode("is 4821973").offsets
    borders = {start for start, _ in offsets}
    assert {3, 6, 9} <= borders


def test_the_chat_template_places_the_special_tokens(folder: Path) -> None:
    chat = AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"}]
    text = chat.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|begin|>Be short.\nHello<|reply|>"
    text = chat.apply_chat_template([*messages[1:], {"role": "assistant", "content": "Hi"}], tokenize=False)
    assert text == "<|begin|>Hello<|reply|>Hi<|end|>"
    assert chat.eos_token == "<|end|>"
