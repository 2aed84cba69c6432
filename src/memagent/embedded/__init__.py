"""The shipped model, and everything that is so only because of it.

    model/        weights, tokenizer, card, and how to read with them
    recipe.toml   how it is trained, stage by stage
    family.py     what the engine is handed: how guesses are written, and the patch below, as one value
    attention.py  attention on a CPU for batches padded on the left
    lfm2.py       the forward pass of LFM2 where only the ends of rows count

It was trained by us from random weights at a small scale; see the card in `model/README.md`.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "model"
