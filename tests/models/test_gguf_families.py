"""llama.cpp computes from a GGUF file what transformers computes from the folder, for every architecture that we write."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("gguf")
pytest.importorskip("xllamacpp")

import gguf
import tokenizers
import torch
import transformers

from memagent.errors import ModelError
from memagent.models.gguf import write_gguf
from tests.models.test_servers import PROMPTS
from tests.models.tiny import SHAPE, make_tiny_causal
from tests.servers import llama_server

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE),
    "llama-biased": lambda: transformers.LlamaConfig(**SHAPE, attention_bias=True, head_dim=32, tie_word_embeddings=True),
    "llama3": lambda: transformers.LlamaConfig(**SHAPE, rope_parameters=LLAMA3),
    "mistral": lambda: transformers.MistralConfig(**SHAPE, sliding_window=None),
    "qwen2": lambda: transformers.Qwen2Config(**SHAPE),
    "qwen3": lambda: transformers.Qwen3Config(**SHAPE, head_dim=32),
}


# How other tokenizers than the tiny one's cut a text into words, by llama.cpp's name for it.
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_EACH_DIGIT = {"type": "Digits", "individual_digits": True}
SPLITS = {"gpt-2": _BYTES, "smollm": {"type": "Sequence", "pretokenizers": [_EACH_DIGIT, _BYTES]}}


@pytest.mark.parametrize("name", SPLITS)
def test_words_are_cut_as_in_transformers(tmp_path: Path, name: str) -> None:
    folder = make_tiny_causal(tmp_path / "tiny", CONFIGS["llama"](), seed=4)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pre_tokenizer": SPLITS[name]}))
    file = write_gguf(folder, tmp_path / "tiny.gguf")
    assert bytes(gguf.GGUFReader(file).fields["tokenizer.ggml.pre"].parts[-1]).decode() == name
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    with llama_server(file) as server:
        for text in [*PROMPTS, "house 1234, it's 5678.90 on 11/24", "a1b22  c333\n\n\t4444 5", "über 12 Häuser, 東京 345"]:
            assert cut_by(server.url, text) == tokenizer.encode(text, add_special_tokens=False).ids, text


@pytest.mark.parametrize("name", CONFIGS)
def test_what_comes_next_is_as_likely_as_in_transformers(tmp_path: Path, name: str) -> None:
    folder = make_tiny_causal(tmp_path / "tiny", CONFIGS[name](), seed=4)
    assert len(list(folder.glob("*.safetensors"))) > 1
    network: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer: Any = transformers.PreTrainedTokenizerFast.from_pretrained(folder)  # "auto" splits as real Qwen models do
    with llama_server(write_gguf(folder, tmp_path / "tiny.gguf")) as server:
        for prompt in [*PROMPTS, "the house on the hill is blue, and its number is 1234. " * 10]:
            found = likeliest(server.url, prompt, tokenizer.vocab["x"])
            ids = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], return_dict=False)
            with torch.no_grad():
                expected = network(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
            assert len(found) == 20
            for token, logprob in found.items():  # llama.cpp keeps keys and values in 16 bits
                assert logprob == pytest.approx(float(expected[token]), abs=0.03)
            assert min(found.values()) > expected.topk(21).values[-1] - 0.06
            assert expected.std() > 0.3  # a wrong model would be seen


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (lambda: transformers.Qwen3Config(**SHAPE, attention_bias=True), r"llama.cpp's qwen3 has no '.*_proj.bias'"),
        (lambda: transformers.MistralConfig(**SHAPE), "a sliding window of 4096 tokens cannot be written"),
        (lambda: transformers.LlamaConfig(**SHAPE, hidden_act="gelu"), "the activation 'gelu' cannot be written"),
    ],
    ids=["bias", "window", "activation"],
)
def test_a_model_that_llama_cpp_would_compute_otherwise_is_refused(
    tmp_path: Path, config: Callable[[], Any], message: str
) -> None:
    folder = make_tiny_causal(tmp_path / "tiny", config())
    fields = json.loads((folder / "config.json").read_text())
    fields.pop("sliding_window", None)  # not every file names what is the default
    (folder / "config.json").write_text(json.dumps(fields))
    with pytest.raises(ModelError, match=message):
        write_gguf(folder, tmp_path / "tiny.gguf")
    assert not list(tmp_path.glob("tiny.gguf*"))


def cut_by(url: str, text: str) -> list[int]:
    """The tokens of a text for the server."""
    body = {"content": text, "add_special": False, "parse_special": False}
    request = urllib.request.Request(url.removesuffix("/v1") + "/tokenize", json.dumps(body).encode())
    with urllib.request.urlopen(request) as answer:
        found: list[int] = json.load(answer)["tokens"]
        return found


def likeliest(url: str, prompt: str, letter: int) -> dict[int, float]:
    """The logarithms of the probabilities of the tokens that a reply most likely begins with. It is made to begin with
    `letter`, since the server tells none where the token is a part of a character."""
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 1, "logprobs": True, "top_logprobs": 20}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body | {"logit_bias": {letter: 100}}).encode())
    with urllib.request.urlopen(request) as answer:
        (step,) = json.load(answer)["choices"][0]["logprobs"]["content"]
    return {one["id"]: one["logprob"] for one in step["top_logprobs"]}
