"""Writes a Hugging Face folder to a GGUF file for llama.cpp.

GGUF stores tensors under llama.cpp's own names, hyper-parameters as typed keys, and the tokenizer inside the file. Weights
are read and written one after another, so that a large model needs a few times the memory of its largest tensor.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from memagent.errors import MissingExtraError, ModelError, OutputError
from memagent.models.gguf.tokenizer import add_tokenizer

if TYPE_CHECKING:
    from memagent.models.gguf.architectures import Architecture
    from memagent.models.gguf.weights import Weights

Dtype: TypeAlias = Literal["f32", "f16"]


def write_gguf(folder: str | Path, path: str | Path, *, dtype: Dtype = "f32") -> Path:
    """Writes the model in `folder` to the GGUF file `path`, replacing it, and returns it.

    `dtype` is that of the matrices; vectors and convolution kernels stay in 32 bits, as llama.cpp expects. Raises
    ModelError when the folder is incomplete, its model or tokenizer is of a kind that is not known here, or a weight does
    not fit into `dtype`; OutputError when the file cannot be written (then nothing is left of it); MissingExtraError.
    """
    try:
        import gguf

        from memagent.models.gguf.architectures import open_config
        from memagent.models.gguf.weights import Weights
    except ImportError:
        raise MissingExtraError("writing GGUF", "train") from None
    folder, path = Path(folder), Path(path)
    architecture, config = open_config(folder)
    with Weights.open(folder) as weights, _whole_file(path) as partial:
        architecture.check(folder, config, weights.shapes)
        with closing(gguf.GGUFWriter(partial, architecture.name)) as writer:
            writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if dtype == "f16" else gguf.LlamaFileType.ALL_F32)
            architecture.add_parameters(writer, config, weights.shapes)
            add_tokenizer(writer, folder, config)
            _add_tensors(writer, architecture, config, weights, dtype)
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


def _add_tensors(writer: Any, architecture: Architecture, config: dict[str, Any], weights: Weights, dtype: Dtype) -> None:
    """The header of the file with the names and shapes of all tensors, then the tensors in the same order."""
    import numpy as np

    known = architecture.names(config["num_hidden_layers"])
    made = architecture.made(config)
    for name, value in made.items():
        writer.add_tensor_info(name, value.shape, value.dtype, value.nbytes)
    kinds = {}
    for name, shape in weights.shapes.items():
        if name not in architecture.expected(config):
            continue  # frequencies, which old folders hold and llama.cpp computes
        target = known.get_name(name, try_suffixes=(".weight", ".bias"))
        shape = architecture.shape(name, shape)
        kind = np.dtype(np.float16 if dtype == "f16" and architecture.is_matrix(name, shape) else np.float32)
        writer.add_tensor_info(target, shape, kind, kind.itemsize * int(np.prod(shape)))
        kinds[name] = kind
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for value in made.values():
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
    if os.fstat(file.fileno()).st_size != file.tell():  # numpy does not say that a disk was full at the very end
        raise OSError(f"only {os.fstat(file.fileno()).st_size} of {file.tell()} bytes were written")
