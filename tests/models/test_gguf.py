"""What goes into a GGUF file. That llama.cpp computes the same from it is shown in test_servers.py."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

import gguf
import numpy as np

from memagent.errors import ModelError
from memagent.models.gguf import write_gguf
from tests.models.tiny import CHAT_TEMPLATE, make_tiny_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "tiny")


def field(reader: Any, name: str) -> Any:
    return reader.get_field(name).contents()


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def rewrite_weights(path: Path, dtype: str) -> dict[str, np.ndarray]:
    """Stores the weights as `dtype` (BF16 or F16) and returns the values that are then in the file."""
    import torch
    from safetensors.torch import load_file, save_file

    kind = {"BF16": torch.bfloat16, "F16": torch.float16}[dtype]
    tensors = {name: tensor.to(kind) for name, tensor in load_file(path).items()}
    save_file(tensors, path)
    return {name: tensor.float().numpy() for name, tensor in tensors.items()}


def test_parameters_and_tokenizer(folder: Path) -> None:
    reader = gguf.GGUFReader(write_gguf(folder, folder.parent / "out.gguf"))
    assert field(reader, "general.architecture") == "lfm2"
    assert field(reader, "lfm2.attention.head_count_kv") == [0, 2, 0]  # zero marks a convolution layer
    assert field(reader, "lfm2.shortconv.l_cache") == 4
    assert field(reader, "lfm2.feed_forward_length") == 96  # two thirds of 128, up to the next multiple of 16
    assert field(reader, "lfm2.context_length") == 512
    assert field(reader, "tokenizer.ggml.pre") == "llama-bpe"
    assert field(reader, "tokenizer.ggml.eos_token_id") == 3
    assert field(reader, "tokenizer.ggml.add_bos_token") is False
    assert field(reader, "tokenizer.chat_template") == CHAT_TEMPLATE
    assert field(reader, "tokenizer.ggml.tokens")[:4] == ["<|pad|>", "<|begin|>", "<|reply|>", "<|end|>"]
    assert field(reader, "tokenizer.ggml.token_type")[:5] == [3, 3, 3, 3, 1]


def test_every_tensor_is_there_once(folder: Path) -> None:
    from safetensors.numpy import load_file

    names = {tensor.name for tensor in gguf.GGUFReader(write_gguf(folder, folder.parent / "out.gguf")).tensors}
    assert len(names) == len(load_file(folder / "model.safetensors"))
    assert {"token_embd.weight", "token_embd_norm.weight", "blk.0.shortconv.conv.weight", "blk.1.attn_q.weight"} <= names


@pytest.mark.parametrize("stored", ["BF16", "F16"])
def test_half_precision_weights_keep_their_values(folder: Path, stored: str) -> None:
    values = rewrite_weights(folder / "model.safetensors", stored)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(write_gguf(folder, folder.parent / "out.gguf")).tensors}
    written = tensors["blk.0.ffn_down.weight"].data
    assert written.dtype == np.float32
    assert np.array_equal(written, values["model.layers.0.feed_forward.w2.weight"])


def test_half_precision_file_keeps_vectors_and_kernels_whole(folder: Path) -> None:
    path = write_gguf(folder, folder.parent / "out.gguf", dtype="f16")
    kinds = {tensor.name: tensor.data.dtype for tensor in gguf.GGUFReader(path).tensors}
    assert kinds["blk.0.ffn_down.weight"] == np.float16
    assert kinds["blk.0.shortconv.conv.weight"] == np.float32
    assert kinds["token_embd_norm.weight"] == np.float32


def test_vocabulary_is_filled_up_to_the_embedding(folder: Path) -> None:
    used = json.loads((folder / "config.json").read_text())["vocab_size"]
    edit(folder / "config.json", vocab_size=used + 2)
    reader = gguf.GGUFReader(write_gguf(folder, folder.parent / "out.gguf"))
    assert field(reader, "tokenizer.ggml.tokens")[-2:] == [f"[PAD{used}]", f"[PAD{used + 1}]"]
    assert field(reader, "tokenizer.ggml.token_type")[-2:] == [5, 5]


def test_chat_template_in_a_file_of_its_own_comes_first(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert (
        field(gguf.GGUFReader(write_gguf(folder, folder.parent / "o.gguf")), "tokenizer.chat_template") == "{{ messages }}"
    )


class TestRefusals:
    def test_another_architecture(self, folder: Path) -> None:
        edit(folder / "config.json", model_type="mamba")
        with pytest.raises(
            ModelError, match=r"'mamba' cannot be written, only lfm2, llama, mistral, qwen2, qwen3; .*convert_hf_to_gguf"
        ):
            write_gguf(folder, folder / "out.gguf")

    def test_a_splitting_rule_without_a_name(self, folder: Path) -> None:
        edit(folder / "tokenizer.json", pre_tokenizer={"type": "Whitespace"})
        with pytest.raises(ModelError, match="Whitespace"):
            write_gguf(folder, folder / "out.gguf")

    @pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
    def test_a_file_is_missing(self, folder: Path, name: str) -> None:
        (folder / name).unlink()
        with pytest.raises(ModelError, match=name):
            write_gguf(folder, folder / "out.gguf")

    def test_weights_that_are_no_weights(self, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", 10) + b"not json..")
        with pytest.raises(ModelError, match="safetensors"):
            write_gguf(folder, folder / "out.gguf")

    def test_a_field_of_the_configuration_is_missing(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        del config["conv_L_cache"]
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelError, match="not complete: 'conv_L_cache' is missing"):
            write_gguf(folder, folder / "out.gguf")
        assert not list(folder.glob("out.gguf*"))

    def test_a_weight_too_large_for_16_bits(self, folder: Path) -> None:
        import torch
        from safetensors.torch import load_file, save_file

        tensors = load_file(folder / "model.safetensors")
        tensors["model.layers.0.feed_forward.w2.weight"][0, 0] = 1e6
        save_file({name: tensor.to(torch.float32) for name, tensor in tensors.items()}, folder / "model.safetensors")
        with pytest.raises(ModelError, match=r"w2.weight' has values beyond those of f16, up to 1e\+06; write f32"):
            write_gguf(folder, folder / "out.gguf", dtype="f16")
        assert not list(folder.glob("out.gguf*"))
        write_gguf(folder, folder / "out.gguf")

    def test_positions_that_it_does_not_know(self, folder: Path) -> None:
        edit(folder / "config.json", rope_parameters={"rope_type": "yarn", "factor": 4.0})
        with pytest.raises(ModelError, match="positions of type 'yarn' cannot be written"):
            write_gguf(folder, folder / "out.gguf")

    def test_an_index_that_names_no_files(self, folder: Path) -> None:
        (folder / "model.safetensors.index.json").write_text('{"weight_map": 3}')
        with pytest.raises(ModelError, match="no weight_map from tensors to files"):
            write_gguf(folder, folder / "out.gguf")


def test_of_several_ends_the_one_of_the_tokenizer_is_the_first(folder: Path) -> None:
    edit(folder / "config.json", eos_token_id=[2, 3])
    reader = gguf.GGUFReader(write_gguf(folder, folder.parent / "out.gguf"))
    assert field(reader, "tokenizer.ggml.eos_token_id") == 3
    assert field(reader, "tokenizer.ggml.eot_token_id") == 2
