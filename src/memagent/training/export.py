"""Writes a trained model as a folder that transformers, vLLM and the GGUF converters can open.

python -m memagent.training.export RUN_FOLDER --out FOLDER
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from memagent.training.checkpoint import load_checkpoint
from memagent.training.config import TrainConfig, load_config
from memagent.training.model import build_model
from memagent.training.tokenizer import load_tokenizer, save_tokenizer

SETTINGS = """# How to read with this model: what it was trained on.
profile = "compact"
window = 1024
# It was trained to update a memory and to answer from it, not to answer from a text.
direct = false

[budgets]
question = 64
chunk = 640
memory = 128
answer = 128
"""


def export_run(run: Path, out: Path, *, averaged: bool = True, dtype: torch.dtype = torch.bfloat16) -> None:
    """Writes config.json, generation_config.json, model.safetensors, the tokenizer and memagent.toml.

    `averaged` takes the weight average instead of the last weights. Raises TrainingError or ConfigError for a folder that
    holds no run.
    """
    config = load_config(run / "config.toml")
    state = load_checkpoint(run / "checkpoint.pt")
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(config.tokenizer)
    save_tokenizer(tokenizer, out, config.model.window)
    write_model(config, tokenizer.get_vocab_size(), state["average" if averaged else "model"], out, dtype)
    (out / "memagent.toml").write_text(SETTINGS, encoding="utf-8")


def write_model(
    config: TrainConfig, vocab_size: int, weights: dict[str, torch.Tensor], out: Path, dtype: torch.dtype
) -> None:
    """Writes the weights and the two JSON files that describe them."""
    model = build_model(config.model, vocab_size, config.seed)
    model.load_state_dict(weights)
    tensors = {name: value.to(dtype).contiguous() for name, value in model.state_dict().items() if name != "lm_head.weight"}
    temporary = out / "model.safetensors.tmp"
    save_file(tensors, temporary, metadata={"format": "pt"})
    temporary.chmod(0o644)
    temporary.replace(out / "model.safetensors")
    description = model.config.to_dict()
    description |= {"architectures": ["Lfm2ForCausalLM"], "dtype": str(dtype).removeprefix("torch.")}
    (out / "config.json").write_text(json.dumps(description, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    generation = {"bos_token_id": 1, "eos_token_id": 3, "pad_token_id": 0, "do_sample": False, "max_new_tokens": 128}
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Export a training run as a model folder.")
    parser.add_argument("run", type=Path, help="folder with config.toml and checkpoint.pt")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--last", action="store_true", help="the last weights instead of their average")
    parser.add_argument("--fp32", action="store_true", help="32-bit weights instead of bfloat16")
    options = parser.parse_args()
    export_run(options.run, options.out, averaged=not options.last, dtype=torch.float32 if options.fp32 else torch.bfloat16)


if __name__ == "__main__":
    main()
