"""What goes into a GGUF file. That llama.cpp computes the same from it is shown in test_servers.py."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
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


def change_weights(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_vocabulary_is_filled_up_to_the_embedding(folder: Path) -> None:
    used = json.loads((folder / "config.json").read_text())["vocab_size"]

    def pad(tensors: dict[str, Any]) -> None:
        rows = tensors["model.embed_tokens.weight"]
        tensors["model.embed_tokens.weight"] = rows.new_zeros(used + 2, rows.shape[1])

    change_weights(folder, pad)
    with pytest.raises(ModelError, match=rf"should be \({used}, 64\) and is \({used + 2}, 64\)"):
        write_gguf(folder, folder.parent / "out.gguf")
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

    def test_weights_of_another_shape(self, folder: Path) -> None:
        edit(folder / "config.json", conv_L_cache=3)
        with pytest.raises(
            ModelError, match=r"do not fit config.json: '.*conv.weight' should be .64, 1, 3. and is .64, 1, 4.; 1"
        ):
            write_gguf(folder, folder / "out.gguf")
        assert not list(folder.glob("out.gguf*"))

    def test_a_weight_is_missing_or_one_too_many(self, folder: Path) -> None:
        change_weights(folder, lambda tensors: tensors.pop("model.layers.0.feed_forward.w2.weight"))
        with pytest.raises(ModelError, match=r"w2.weight' should be \(64, 96\) and is missing"):
            write_gguf(folder, folder / "out.gguf")
        make_tiny_model(folder)
        change_weights(folder, lambda tensors: tensors.update(scale=tensors["model.layers.0.feed_forward.w2.weight"] + 0))
        with pytest.raises(ModelError, match="tensor 'scale' belongs to no layer"):
            write_gguf(folder, folder / "out.gguf")

    def test_a_weight_too_large_for_16_bits(self, folder: Path) -> None:
        def enlarge(tensors: dict[str, Any]) -> None:
            tensors["model.layers.0.feed_forward.w2.weight"][0, 0] = 1e6

        change_weights(folder, enlarge)
        with pytest.raises(ModelError, match=r"w2.weight' has values beyond those of f16, up to 1e\+06; write f32"):
            write_gguf(folder, folder / "out.gguf", dtype="f16")
        assert not list(folder.glob("out.gguf*"))
        write_gguf(folder, folder / "out.gguf")

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}}, "positions of type 'yarn'"),
            ({"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 4.0}}, "positions of type 'linear'"),
            ({"quantization_config": {"quant_method": "fp8"}}, "quantized weights"),
        ],
    )
    def test_what_llama_cpp_would_compute_otherwise(self, folder: Path, changes: dict[str, Any], message: str) -> None:
        edit(folder / "config.json", **changes)
        with pytest.raises(ModelError, match=f"{message} cannot be written: use llama.cpp's convert_hf_to_gguf.py"):
            write_gguf(folder, folder / "out.gguf")

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"normalizer": {"type": "Lowercase"}}, "does not normalize text by Lowercase"),
            ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}}, "only the splitting rules of"),
            ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}}, "only the splitting"),
            ({"digits": True}, "only the splitting rules of .*Digits"),
            ({"use_regex": True}, "only the splitting rules of"),
            ({"byte_fallback": True}, "not SentencePiece"),
        ],
    )
    def test_a_tokenizer_that_cuts_words_otherwise(self, folder: Path, changes: dict[str, Any], message: str) -> None:
        data = json.loads((folder / "tokenizer.json").read_text())
        if changes.pop("digits", False):
            data["pre_tokenizer"]["pretokenizers"].insert(0, {"type": "Digits", "individual_digits": True})
        if changes.pop("use_regex", False):
            data["pre_tokenizer"]["pretokenizers"][-1]["use_regex"] = True
        data["model"]["byte_fallback"] = changes.pop("byte_fallback", False)
        (folder / "tokenizer.json").write_text(json.dumps(data | changes))
        with pytest.raises(ModelError, match=message):
            write_gguf(folder, folder / "out.gguf")
        assert not list(folder.glob("out.gguf*"))

    def test_a_folder_that_is_not_there(self, folder: Path) -> None:
        with pytest.raises(ModelError, match="Qwen/Qwen3-8B: there is no such folder; a model of the Hugging Face Hub"):
            write_gguf("Qwen/Qwen3-8B", folder / "out.gguf")

    def test_a_template_that_begins_with_an_unknown_token(self, folder: Path) -> None:
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        del settings["bos_token"]
        settings["chat_template"] = "{{ bos_token }}{{ messages }}"
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        with pytest.raises(ModelError, match=r"uses bos_token, and tokenizer_config.json does not say which"):
            write_gguf(folder, folder / "out.gguf")

    def test_an_index_that_names_no_files(self, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text('{"weight_map": 3}')
        with pytest.raises(ModelError, match="no weight_map from tensors to files"):
            write_gguf(folder, folder / "out.gguf")


def test_of_several_ends_the_one_of_the_tokenizer_is_the_first(folder: Path) -> None:
    edit(folder / "config.json", eos_token_id=2)
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 3]}')
    reader = gguf.GGUFReader(write_gguf(folder, folder.parent / "out.gguf"))
    assert field(reader, "tokenizer.ggml.eos_token_id") == 3
    assert field(reader, "tokenizer.ggml.eot_token_id") == 2


def test_the_first_token_is_that_of_the_tokenizer(folder: Path) -> None:
    edit(folder / "config.json", bos_token_id=3)
    edit(folder / "tokenizer_config.json", add_bos_token=True)
    reader = gguf.GGUFReader(write_gguf(folder, folder.parent / "out.gguf"))
    assert field(reader, "tokenizer.ggml.bos_token_id") == 1
    assert field(reader, "tokenizer.ggml.add_bos_token") is True


def test_a_folder_without_a_chat_template_is_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    edit(folder / "tokenizer_config.json", chat_template=None)
    write_gguf(folder, folder.parent / "out.gguf")
    assert "has no chat template: llama.cpp will use ChatML" in caplog.text


def test_one_file_of_weights_comes_before_the_list_of_an_earlier_model(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "old.safetensors"}}')
    write_gguf(folder, folder.parent / "out.gguf")


@pytest.mark.parametrize("less", [50, 200_000])
def test_a_full_disk_leaves_no_file(folder: Path, less: int) -> None:
    size = write_gguf(folder, folder / "out.gguf").stat().st_size
    (folder / "out.gguf").unlink()
    limit = (
        f"import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size - less}, {size - less}));"
        f"from memagent.models.gguf import write_gguf; write_gguf({str(folder)!r}, {str(folder / 'out.gguf')!r})"
    )
    done = subprocess.run([sys.executable, "-c", limit], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "OutputError" in done.stderr
    assert "cannot be written" in done.stderr
    assert not list(folder.glob("out.gguf*"))
