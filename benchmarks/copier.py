"""A Llama whose weights we set, so that its greedy replies copy the memory in the prompt.

It is no trained model: what it says means nothing, how much of a memory stays is our choice (a share of the vocabulary is
replaced by other words), and its time is that of a model of its size.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from memagent.embedded import FOLDER as EMBEDDED
from memagent.tasks.words import shipped_words

MEMORY = (
    "Found so far: the captain of the first ship promised 4711 gold coins to whoever raised the white whale; the second"
    " mate, Stubb, smoked 12 pipes a day; the carpenter made 33 lances; the cook gave a sermon to the sharks"
)


def long_memory(tokenizer: Any, tokens: int) -> str:
    """A memory of so many tokens, a few less at most: words in random order, each once, so that hardly four tokens in a row
    come twice."""
    words = shipped_words("eval")
    found = random.Random(0).sample([*words.adjectives, *words.nouns], tokens)
    while len(tokenizer(text := f"Found so far: {' '.join(found)}")["input_ids"]) > tokens:
        found.pop()
    return text


# Dimensions of a head, and of the code of a token. The first _PLACES pairs of a head's dimensions tell places
# apart, and those from _SLOW on hardly turn within a window, so that codes can be compared in them.
HEADS, CODE = 256, 44
_THETA, _PLACES, _SLOW = 1e16, 24, 40
# A reply begins after what a memory stands after, and ends with its line.
_TEMPLATE = (
    "{%- for message in messages -%}{{ message['content'] }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '\\n\\n<memory>\\n' }}{%- endif -%}"
)


def write_copier(
    folder: Path, *, window: int, hidden: int = 512, layers: int = 4, changed: float = 0.0, dtype: str = "float32"
) -> int:
    """Writes a Llama that copies the old memory up to its first line break; returns how many weights it has.

    `changed` is the share of the vocabulary that is replaced.
    """
    tokenizer: Any = AutoTokenizer.from_pretrained(EMBEDDED, local_files_only=True)
    end = tokenizer.eos_token_id
    breaks = [number for token, number in tokenizer.get_vocab().items() if "Ċ" in token]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=HEADS,
        max_position_embeddings=window,
        rope_parameters={"rope_type": "default", "rope_theta": _THETA},
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=end,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        _copying(model, end, breaks, changed)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(folder)
    return sum(one.numel() for one in model.parameters())


def _copying(model: Any, end: int, breaks: list[int], changed: float) -> None:
    """Sets the weights of an induction head: what followed the last four tokens before, follows them again.

    A row of the residual stream has the code of its token, those of the four tokens before it, what is to be said next,
    and a constant. All line breaks have the code of the end of a reply, and are never said.
    """
    token, *before, said = (slice(number * CODE, (number + 1) * CODE) for number in range(6))
    constant = 6 * CODE
    codes = torch.randint(0, 2, (model.config.vocab_size, CODE)) * 2.0 - 1
    codes[breaks] = codes[end].clone()
    for layer in model.model.layers:
        layer.mlp.down_proj.weight.zero_()
        layer.self_attn.o_proj.weight.zero_()
    embedded = model.model.embed_tokens.weight.zero_()
    embedded[:, token], embedded[:, constant] = codes, math.sqrt(CODE)
    width = model.config.hidden_size
    first, second = math.sqrt(2 * CODE / width), math.sqrt(6 * CODE / width)  # what a norm divides by
    _look_back(model.model.layers[0].self_attn, token, before, constant, first)
    _match(model.model.layers[1].self_attn, token, before, said, second)
    head = model.lm_head.weight.zero_()
    head[:, said] = codes
    head[breaks] = 0
    draw = random.Random(0)
    others = [number for number in range(len(codes)) if number not in (end, *breaks)]
    chosen = draw.sample(others, round(changed * len(others)))
    head[chosen] = head[chosen[1:] + chosen[:1]]


def _look_back(attention: Any, token: slice, before: list[slice], constant: int, norm: float) -> None:
    """Head n looks at the token n places before, and puts its code into the slot for it."""
    q, k, v, o = (getattr(attention, f"{name}_proj").weight for name in "qkvo")
    for weight in (q, k, v):
        weight.zero_()
    turn = _THETA ** (-torch.arange(_PLACES) / (HEADS / 2))
    strength = 16.0 * norm / math.sqrt(CODE)
    for number, slot in enumerate(before):
        start = number * HEADS
        q[start : start + _PLACES, constant] = strength * torch.cos(-(number + 1) * turn)
        q[start + HEADS // 2 : start + HEADS // 2 + _PLACES, constant] = strength * torch.sin(-(number + 1) * turn)
        k[start : start + _PLACES, constant] = strength
        v[start : start + CODE, token] = torch.eye(CODE) * norm
        o[slot, start : start + CODE] = torch.eye(CODE)


def _match(attention: Any, token: slice, before: list[slice], said: slice, norm: float) -> None:
    """A head looks at the token that follows the most of the last four tokens, the last one counting most."""
    q, k, v, o = (getattr(attention, f"{name}_proj").weight for name in "qkvo")
    for weight in (q, k, v):
        weight.zero_()
    slow = [*range(_SLOW, HEADS // 2), *range(HEADS // 2 + _SLOW, HEADS)]
    for number, (asked, known, weight) in enumerate(zip([token, *before], before, (1.0, 0.8, 0.7, 0.6), strict=False)):
        rows = slow[number * CODE : (number + 1) * CODE]
        q[rows, asked] = torch.eye(CODE) * 3 * weight * norm
        k[rows, known] = torch.eye(CODE) * 3 * norm
    v[:CODE, token] = torch.eye(CODE) * norm
    o[said, :CODE] = 4 * torch.eye(CODE)
