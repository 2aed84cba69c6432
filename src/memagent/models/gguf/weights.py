"""The weights of a Hugging Face folder, in one safetensors file or in several, read one tensor at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from memagent.errors import ModelError
from memagent.models.gguf.folder import read_json


class Weights:
    """The tensors of some open files. `shapes` are theirs, by name, in the order of the files."""

    def __init__(self, files: Mapping[Path, Any]) -> None:
        self._where = {name: (path, file) for path, file in files.items() for name in file.keys()}  # noqa: SIM118  # no mapping
        self.shapes = {name: tuple(file.get_slice(name).get_shape()) for name, (_, file) in self._where.items()}

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator[Weights]:
        """The weights of a folder, open. Raises ModelError for files that are missing or unreadable."""
        with ExitStack() as stack:
            files = {}
            for path in _files(folder):
                try:
                    files[path] = stack.enter_context(safe_open(path, framework="pt"))
                except (OSError, SafetensorError) as error:
                    raise ModelError(f"{path}: not a readable safetensors file: {error}") from None
            yield cls(files)

    def read(self, name: str) -> NDArray[np.float32]:
        """A tensor in float32. Raises ModelError."""
        path, file = self._where[name]
        try:
            tensor = file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{path}: tensor {name!r} cannot be read: {error}") from None
        if not tensor.is_floating_point():
            raise ModelError(
                f"{path}: tensor {name!r} has weights of type {tensor.dtype}: only real numbers can be written"
            )
        value: NDArray[np.float32] = tensor.float().numpy()
        return value


def _files(folder: Path) -> list[Path]:
    index, whole = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if whole.exists() or not index.exists():  # as in transformers, the single file comes first
        return [whole]
    files = read_json(index).get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise ModelError(f"{index}: no weight_map from tensors to files")
    return [folder / name for name in sorted(set(files.values()))]
