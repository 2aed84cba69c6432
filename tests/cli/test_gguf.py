"""`memagent train gguf`: a model folder as a file for llama.cpp."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf")
pytest.importorskip("torch")

import gguf

from tests.models.tiny import make_tiny_model


def test_the_embedded_model_is_written_in_16_bits(memagent: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    done = memagent("train", "gguf", "embedded", file)
    assert done.code == 0
    assert f"llama-server -m {file}" in done.err.replace("\n", "")
    assert gguf.GGUFReader(file).get_field("general.file_type").contents() == gguf.LlamaFileType.MOSTLY_F16
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_what_cannot_be_written_is_said_and_nothing_is_left(memagent: Callable[..., Any], tmp_path: Path) -> None:
    folder, file = make_tiny_model(tmp_path / "tiny"), tmp_path / "out" / "model.gguf"
    assert "f16, f32" in memagent("train", "gguf", folder, file, "--dtype", "q4").err
    missing = memagent("train", "gguf", folder, file)  # there is no folder for it
    assert missing.code == 2
    assert "cannot be written" in missing.err
    file.parent.mkdir()
    file.write_text("mine")
    kept = memagent("train", "gguf", folder, file)
    assert kept.code == 2
    assert "exists" in kept.err
    assert file.read_text() == "mine"
    file.unlink()
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-4000])
    cut = memagent("train", "gguf", folder, file)
    assert cut.code == 4
    assert "model.safetensors" in cut.err
    assert not list(file.parent.iterdir())
