"""What may be done with a model that is shown tokens in another order than `generate` of transformers shows them."""

from __future__ import annotations

from typing import Any

# Rotary embeddings that are other ones once a pass is longer than some length.
_LENGTH_MATTERS = {"longrope", "dynamic"}

# Kinds of models of transformers whose replies tests have found equal with and without guesses, and whenever they begin.
_TESTED = frozenset("gpt2 gpt_neox granite llama mistral mixtral olmo2 phi phi3 qwen2 qwen3 stablelm starcoder2".split())
# More kinds, of which that was tested only of when they begin: they have layers that see a window, or short convolutions.
_WINDOWED = frozenset("cohere2 gemma2 gemma3_text gpt_oss olmo3".split())
_CONVOLVED = frozenset({"lfm2"})
_KEPT_BY_ROW = {"full_attention", "sliding_attention", "conv"}


def takes_drafts(config: Any) -> bool:
    """Whether a model computes a prompt independently of the text after it."""
    parameters = getattr(config.get_text_config(), "rope_parameters", None) or {}
    kinds = {one.get("rope_type") for one in (parameters, *parameters.values()) if isinstance(one, dict)}
    return not kinds & _LENGTH_MATTERS


def takes_gaps(config: Any) -> bool:
    """Whether a model may be shown a sequence with masked tokens in it: a kind that is tested, with attention over all
    places in every layer.

    A convolution or a recurrent state would see what is masked; a sliding window and a bias by distance would count it.
    """
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or [])
    everywhere = kinds == {"full_attention"} if kinds else getattr(text, "sliding_window", None) is None
    return text.model_type in _TESTED and everywhere and takes_drafts(config)


def takes_rows(config: Any) -> bool:
    """Whether a row may join others that are under way: a kind that is tested, with nothing but attention, over all places
    or over the last ones, and short convolutions.

    What such a layer keeps of a row can be put beside what it keeps of others: keys and values with masked places before
    them, or the last inputs of a convolution.
    """
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or [])
    return text.model_type in _TESTED | _WINDOWED | _CONVOLVED and kinds <= _KEPT_BY_ROW and takes_drafts(config)
