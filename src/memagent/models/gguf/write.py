"""Writes a Hugging Face folder to a GGUF file for llama.cpp.

GGUF stores tensors under llama.cpp's own names, hyper-parameters as typed keys, and the tokenizer inside the file. Weights
are read and written one after another, so that a large model needs a few times the memory of its largest tensor.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from math import prod
from pathlib import Path
from typing import Any, Literal, TypeAlias

from memagent.errors import MissingExtraError, ModelError, OutputError

try:
    import gguf
    import numpy as np

    from memagent.models.gguf.architectures import Architecture, Shapes, open_config
    from memagent.models.gguf.tokenizer import add_tokenizer
    from memagent.models.gguf.weights import Weights
except ImportError:
    raise MissingExtraError("writing GGUF", "train") from None

Dtype: TypeAlias = Literal["f32", "f16"]


def write_gguf(folder: str | Path, path: str | Path, *, dtype: Dtype = "f32") -> Path:
    """Writes the model in `folder` to the GGUF file `path`, replacing it, and returns it.

    `dtype` is that of the matrices; vectors and convolution kernels stay in 32 bits, as llama.cpp expects. Raises
    ModelError when the folder is incomplete, its model or tokenizer is of a kind that is not known here, or a weight does
    not fit into `dtype`; OutputError when the file cannot be written (then nothing is left of it).
    """
    folder, path = Path(folder), Path(path)
    architecture, config = open_config(folder)
    with Weights.open(folder) as weights, _whole_file(path) as partial:
        shapes = architecture.known(folder, config, weights.shapes)
        with closing(gguf.GGUFWriter(partial, architecture.name)) as writer:
            writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if dtype == "f16" else gguf.LlamaFileType.ALL_F32)
            architecture.add_parameters(writer, config, shapes)
            add_tokenizer(writer, folder, config)
            kinds = _add_shapes(writer, architecture, config, shapes, dtype)
            _add_tensors(writer, architecture, config, weights, kinds)
    return path


@contextmanager
def _whole_file(path: Path) -> Iterator[Path]:
    """A file beside `path` that takes its place when it is whole, and is gone otherwise."""
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _add_shapes(
    writer: Any, architecture: Architecture, config: dict[str, Any], shapes: Shapes, dtype: Dtype
) -> Mapping[str, np.dtype[Any]]:
    """Adds the names and shapes of all tensors; returns in which type each is to be written, in this order."""
    known, kinds = architecture.names(config["num_hidden_layers"]), {}
    for name, value in architecture.made(config).items():
        writer.add_tensor_info(name, value.shape, value.dtype, value.nbytes)
    for name, shape in shapes.items():
        shape = architecture.shape(name, shape)
        kind = np.dtype(np.float16 if dtype == "f16" and architecture.is_matrix(name, shape) else np.float32)
        target = known.get_name(name, try_suffixes=(".weight", ".bias"))
        writer.add_tensor_info(target, shape, kind, kind.itemsize * prod(shape))
        kinds[name] = kind
    return kinds


def _add_tensors(
    writer: Any, architecture: Architecture, config: dict[str, Any], weights: Weights, kinds: Mapping[str, np.dtype[Any]]
) -> None:
    """Writes the header, then the tensors."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for value in architecture.made(config).values():
        writer.write_tensor_data(value)
    for name, kind in kinds.items():
        whole = architecture.values(name, weights.read(name), config)
        with np.errstate(over="ignore"):
            value = np.ascontiguousarray(whole.astype(kind, copy=False))
        if kind == np.float16 and not np.isfinite(value).all():
            raise ModelError(f"tensor {name!r} has values beyond those of f16, up to {np.abs(whole).max():g}; write f32")
        writer.write_tensor_data(value)
    (file,) = writer.fout
    file.flush()
    written = os.fstat(file.fileno()).st_size
    if written != file.tell():  # numpy does not say that a disk was full at the very end
        raise OSError(f"only {written} of {file.tell()} bytes were written")
