r"""Trains the embedded model's tokenizer: byte-level BPE, with the pre-tokenization that llama.cpp calls "llama-bpe".

Digits are cut into groups of up to three, and every such group gets a token of its own: copying a number is then a matter
of a few tokens that each say where in the number one is.

    python -m memagent.training.tokenizer --out FOLDER \
        --books data/books/war_and_peace.md.gz data/books/federalist_papers.md.gz
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from memagent.tasks.haystack import read_text
from memagent.tasks.keys import distinct_keys, make_value
from memagent.tasks.wording import NOUNS, STATEMENTS, ValueKind, ask, state
from memagent.tasks.words import shipped_words

PAD, BEGIN, REPLY, END = "<|pad|>", "<|begin|>", "<|reply|>", "<|end|>"
SPECIALS = (PAD, BEGIN, REPLY, END)
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{%- set ns = namespace(system='') -%}"
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'system' -%}{%- set ns.system = message['content'] + '\\n' -%}"
    "{%- elif message['role'] == 'user' -%}{{- '<|begin|>' + ns.system + message['content'] -}}"
    "{%- set ns.system = '' -%}"
    "{%- elif message['role'] == 'assistant' -%}{{- '<|reply|>' + message['content'] + '<|end|>' -}}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|reply|>' -}}{%- endif -%}"
)


def train_tokenizer(texts: Iterator[str], vocab_size: int) -> Tokenizer:
    """A tokenizer of `vocab_size` entries, the four special tokens (ids 0 to 3) included."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def corpus(books: Sequence[Path], seed: int = 0, lines: int = 6000, numbers: int = 400) -> Iterator[str]:
    """The books, `lines` made-up sentences and questions, and every group of two or three digits `numbers` times."""
    for book in books:
        yield from read_text(book).splitlines(keepends=True)
    rng, words = random.Random(seed), shipped_words("train")
    kinds: tuple[ValueKind, ...] = ("number", "word")
    for _ in range(lines):
        kind = rng.choice(kinds)
        noun = rng.choice(NOUNS[kind])
        keys = distinct_keys(rng, rng.randint(1, 4), "pair", words)
        yield f"Question: {ask(rng, noun, keys)}\nMemory: nothing yet\nText:\nNew memory:\nAnswer: not found"
        for key in keys:
            value = make_value(rng, kind, words)
            yield state(rng.choice(STATEMENTS), noun, key, value)
            yield f"Memory: - {key}: {value}\n- {key}: not yet\n"
    for size in (2, 3):
        for number in range(10**size):
            yield " ".join([f"{number:0{size}d}"] * numbers)


def save_tokenizer(tokenizer: Tokenizer, folder: Path, window: int) -> None:
    """Writes tokenizer.json and tokenizer_config.json, as transformers, vLLM and the GGUF converters read them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "pad_token": PAD,
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": window,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the embedded model's tokenizer.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--books", type=Path, nargs="+", required=True, help="texts to learn from")
    parser.add_argument("--vocab", type=int, default=4096, help="number of tokens, specials included")
    parser.add_argument("--window", type=int, default=1024, help="the model's window in tokens")
    arguments = parser.parse_args()
    save_tokenizer(train_tokenizer(corpus(arguments.books), arguments.vocab), arguments.out, arguments.window)


if __name__ == "__main__":
    main()
