"""Language models of a few thousand random weights, in folders that transformers opens, and rows to train them on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer

from memagent.training.credit import Conversation, CreditedRow, weigh
from memagent.training.rows import Batch, Row, make_batch
from memagent.training.tokenizer import save_tokenizer, train_tokenizer

TEXT = "Question: what is the code? Memory: nothing yet. She came home late. The code of a is 12. New memory: 12\n" * 20
WINDOW = 512

_SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "max_position_embeddings": WINDOW,
    # Large enough that the next token depends on the text; the default of 0.02 says the same everywhere.
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 3,
    "tie_word_embeddings": True,
}


@lru_cache(maxsize=1)
def _tokenizer() -> Tokenizer:
    return train_tokenizer(iter(TEXT.splitlines(keepends=True)), 300)


def make_config(kind: str, **changes: Any) -> Any:
    """The configuration of an "lfm2", "llama" or "qwen2" with two or three layers."""
    shape = _SHAPE | {"vocab_size": _tokenizer().get_vocab_size()}
    if kind == "llama":
        return transformers.LlamaConfig(**shape | {"num_hidden_layers": 2, "num_key_value_heads": 2} | changes)
    if kind == "qwen2":
        made = {"num_hidden_layers": 2, "num_key_value_heads": 2, "tie_word_embeddings": False}
        return transformers.Qwen2Config(**shape | made | changes)
    layers = {"layer_types": ["conv", "full_attention", "conv"], "num_hidden_layers": 3, "num_key_value_heads": 4}
    return transformers.Lfm2Config(**shape | layers | {"block_auto_adjust_ff_dim": False, "conv_L_cache": 3} | changes)


def make_folder(folder: Path, kind: str = "llama", *, seed: int = 0, **changes: Any) -> Path:
    """Writes a model of that kind, its tokenizer and a memagent.toml. The same seed gives the same weights."""
    save_tokenizer(_tokenizer(), folder, WINDOW)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        build: Any = transformers.AutoModelForCausalLM.from_config
        model = build(make_config(kind, **changes))
        for name, value in model.named_parameters():
            if "norm" in name:  # ones would hide a norm that is left out
                torch.nn.init.uniform_(value, 0.5, 1.5)
    model.save_pretrained(folder)
    (folder / "memagent.toml").write_text('profile = "compact"\ndirect = false\n', encoding="utf-8")
    return folder


def some_ids(rng: random.Random, count: int) -> tuple[int, ...]:
    """Token ids that are not special."""
    return tuple(rng.randrange(4, _tokenizer().get_vocab_size()) for _ in range(count))


def conversation(rng: random.Random, prompt: int, reply: int, logprob: float = -1.0) -> Conversation:
    """Random tokens, so many of each; every token of the reply was recorded with that log-probability."""
    return Conversation(some_ids(rng, prompt), some_ids(rng, reply), (logprob,) * reply)


def credited(
    lengths: Sequence[tuple[int, int]], *, seed: int = 0, advantages: Sequence[float] = (0.7, -0.4, 0.1)
) -> list[CreditedRow]:
    """Rows of those (prompt, reply) lengths whose advantages go round, as weighed for one update."""
    rng = random.Random(seed)
    rows = []
    for place, (prompt, reply) in enumerate(lengths):
        value = advantages[place % len(advantages)]
        rows.append(CreditedRow(conversation(rng, prompt, reply), up=max(value, 0.0), down=min(value, 0.0)))
    return weigh(rows)


def as_batch(conversations: Sequence[Conversation]) -> Batch:
    """The rectangle of some conversations, with a target wherever they have a reply."""
    rows = [Row((*one.prompt, *one.reply), len(one.prompt) - 1, (0,) * len(one.reply)) for one in conversations]
    return make_batch(rows, pad=0)
