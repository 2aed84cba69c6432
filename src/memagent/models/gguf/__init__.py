"""A Hugging Face folder as a GGUF file, for llama.cpp and what is built on it."""

from memagent.models.gguf.write import Dtype, write_gguf

__all__ = ["Dtype", "write_gguf"]
