"""Writes a Hugging Face folder to a GGUF file for llama.cpp.

GGUF stores tensors under llama.cpp's own names, hyper-parameters as typed keys, and the tokenizer inside the file. Weights
are read and written one after another, so that a model needs no more memory than its largest tensor.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from memagent.errors import MissingExtraError, ModelError, OutputError
from memagent.models.gguf.architectures import Architecture, architecture_of
from memagent.models.gguf.folder import read_json
from memagent.models.gguf.tokenizer import add_tokenizer

if TYPE_CHECKING:
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

        from memagent.models.gguf.weights import Weights
    except ImportError:
        raise MissingExtraError("writing GGUF", "train") from None
    folder, path = Path(folder), Path(path)
    config = read_json(folder / "config.json")
    architecture = architecture_of(folder, config)
    partial = path.with_name(path.name + ".partial")
    with Weights.open(folder) as weights:
        writer = gguf.GGUFWriter(partial, architecture.name)
        writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if dtype == "f16" else gguf.LlamaFileType.ALL_F32)
        try:
            architecture.add_parameters(writer, config, weights)
            add_tokenizer(writer, folder, config)
            _write(writer, architecture, config, weights, dtype)
            partial.replace(path)
        except KeyError as error:
            raise ModelError(f"{folder}: the model is not complete: {error} is missing") from error
        except OSError as error:
            raise OutputError(f"{path}: cannot be written: {error}") from error
        finally:
            writer.close()
            partial.unlink(missing_ok=True)
    return path


def _write(writer: Any, architecture: Architecture, config: dict[str, Any], weights: Weights, dtype: Dtype) -> None:
    """The header of the file with the names and shapes of all tensors, then the tensors in the same order."""
    import numpy as np

    known = architecture.names(config["num_hidden_layers"])
    made = {name: np.asarray(value, np.float32) for name, value in architecture.made(config).items()}
    for name, value in made.items():
        writer.add_tensor_info(name, value.shape, value.dtype, value.nbytes)
    small = {}
    for name, shape in weights.shapes.items():
        target = known.get_name(name, try_suffixes=(".weight", ".bias"))
        if target is None:
            raise ModelError(f"tensor {name!r} has no counterpart in llama.cpp's {architecture.name} architecture")
        shape = architecture.shape(name, shape)
        kind = np.dtype(np.float16 if dtype == "f16" and architecture.is_matrix(name, shape) else np.float32)
        writer.add_tensor_info(target, shape, kind, kind.itemsize * int(np.prod(shape)))
        small[name] = kind
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for value in made.values():
        writer.write_tensor_data(value)
    for name, kind in small.items():
        whole = architecture.values(name, weights.read(name), config)
        with np.errstate(over="ignore"):
            value = whole.astype(kind)
        if not np.isfinite(value).all():
            raise ModelError(
                f"tensor {name!r} has values beyond those of {dtype}, up to {np.abs(whole).max():g}; write f32"
            )
        writer.write_tensor_data(np.ascontiguousarray(value))
