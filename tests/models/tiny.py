"""A very small, randomly initialised LFM2 model in a Hugging Face folder: real code paths, no download, under a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# Of the other architectures: the arguments of their configurations.
SHAPE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
}
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = "<|begin|>{% for message in messages %}{{ message['content'] }}{% endfor %}<|reply|>"
SPECIAL_TOKENS = ["<|pad|>", "<|begin|>", "<|reply|>", "<|end|>"]
_CORPUS = [
    "Question: what is the colour of the house? Memory: nothing yet. Text: the house on the hill is blue.",
    "New memory: the house is blue, and its number is 1234. Answer: blue.",
    "Naïve café, straße, Москва, 東京, 한국어, emoji 🙂; def f(x): return x + 1\n\n    indented\ttext",
]


def make_tiny_model(folder: Path, seed: int = 0, *, window: int = 512) -> Path:
    """Writes config, weights (float32), tokenizer and chat template into `folder`; the same seed gives the same weights."""
    folder.mkdir(parents=True, exist_ok=True)
    size = write_tokenizer(folder)
    _write_weights(folder, seed, vocabulary=size, window=window)
    return folder


def open_tiny_model(folder: Path, config: Any = None) -> Any:
    """A model as the in-process engine runs it: of a configuration, or the one above if there is none."""
    import torch
    from transformers import AutoModelForCausalLM

    from memagent.embedded.attention import use_row_attention

    opener: Any = AutoModelForCausalLM
    if config is None:
        made = opener.from_pretrained(make_tiny_model(folder))
    else:
        torch.manual_seed(0)
        made = opener.from_config(config)
    use_row_attention(made.float().eval())
    return made


class Counted:
    """A model that notes the size [rows, tokens] of every forward pass."""

    def __init__(self, model: Any) -> None:
        self.model, self.device, self.config = model, model.device, model.config
        self.calls: list[tuple[int, ...]] = []

    def __call__(self, **options: Any) -> Any:
        self.calls.append(tuple(options["input_ids"].shape))
        return self.model(**options)


def write_tokenizer(folder: Path) -> int:
    """Writes tokenizer.json and tokenizer_config.json: byte-level BPE, Llama-3 splitting. Returns the vocabulary size."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        min_frequency=1,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<|pad|>",
        "bos_token": "<|begin|>",
        "eos_token": "<|end|>",
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return tokenizer.get_vocab_size()


def _write_weights(folder: Path, seed: int, *, vocabulary: int, window: int) -> None:
    import torch
    from transformers import Lfm2Config, Lfm2ForCausalLM

    config = Lfm2Config(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        block_multiple_of=16,
        num_hidden_layers=3,
        layer_types=["conv", "full_attention", "conv"],
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=window,
        conv_L_cache=4,
        # Large enough that the next token depends on the text; the default 0.02 repeats one token for ever.
        initializer_range=0.15,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Lfm2ForCausalLM(config).float()
    model.save_pretrained(folder)


def make_tiny_causal(folder: Path, config: Any, seed: int = 0) -> Path:
    """A random model of another architecture, with the same tokenizer. `config` is told of the tokenizer's tokens."""
    import torch
    from transformers import AutoModelForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    config.vocab_size = write_tokenizer(folder)
    config.pad_token_id, config.bos_token_id, config.eos_token_id = 0, 1, 3
    opener: Any = AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = opener.from_config(config).float()
        for value in model.parameters():  # biases and norms, too, are of no special kind
            if value.ndim == 1:
                value.data += torch.randn(value.shape) * 0.3
    model.save_pretrained(folder, max_shard_size="100KB")
    return folder
