"""Looking up the old memory while a new one is written, against doing without, and against `generate` of transformers.

    python -m benchmarks.lookup OUT.csv [--hidden 512] [--layers 8] [--prompt 600] [--reply 128] [--batch 1 32]
        [--kept 1.0 0.8 0.5 0.0] [--repeat 3] [--threads 1] [--dtype float32]

A Llama with random weights writes greedy replies of so many tokens. The old memory that they are looked up in is the reply
itself, in pieces of eight tokens, of which a share of `--kept` is left and the others are replaced by random tokens. So
the share that stays is chosen, and is no model's. Engines take turns; seconds are the median of whole calls, prompts
included. `passes` are the passes of the model after the prompts. `equal` is the share of replies that are those of
`generate`: near-equal logits of random weights may round to another token, from which on the rest differs.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers

from benchmarks.readers import write
from memagent.core import Sampling
from memagent.models.lookup import Lookup
from memagent.models.sampler import Row, sample

COLUMNS = (
    "engine parameters dtype batch kept prompt reply seconds passes against_generate against_plain equal repeats".split()
)
_PIECE, _VOCABULARY = 8, 8192


class Counted:
    """A model that counts its passes."""

    def __init__(self, model: Any) -> None:
        self.model, self.device, self.config, self.passes = model, model.device, model.config, -1

    def __call__(self, **options: Any) -> Any:
        self.passes += 1
        return self.model(**options)


def llama(hidden: int, layers: int, window: int, dtype: str) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=_VOCABULARY,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=max(1, hidden // 256),
        max_position_embeddings=window,
        initializer_range=0.1,
        eos_token_id=None,
    )
    return transformers.LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()


def memory_of(reply: Sequence[int], kept: float, draw: random.Random) -> list[int]:
    """The reply with a share of its pieces left as they are."""
    pieces = [list(reply[start : start + _PIECE]) for start in range(0, len(reply), _PIECE)]
    changed = draw.sample(range(len(pieces)), round((1 - kept) * len(pieces)))
    return [
        draw.randrange(_VOCABULARY) if number in changed else token
        for number, piece in enumerate(pieces)
        for token in piece
    ]


def by_generate(model: Any, prompts: Sequence[Sequence[int]], reply: int) -> list[list[int]]:
    made = model.generate(
        torch.tensor(prompts), max_new_tokens=reply, min_new_tokens=reply, do_sample=False, pad_token_id=0
    )
    return [row[len(prompts[0]) :] for row in made.tolist()]


def by_us(
    model: Any, prompts: Sequence[Sequence[int]], reply: int, memories: Sequence[Sequence[int]] | None
) -> list[list[int]]:
    rows = [Row(prompt=prompt, max_tokens=reply, sampling=Sampling()) for prompt in prompts]
    for row, memory in zip(rows, memories or (), strict=False):
        row.lookup = Lookup(memory)
    sample(model, rows, stop_ids=frozenset(), pad_id=0)
    return [row.ids for row in rows]


def measured(model: Any, batch: int, given: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for `generate`, one for plain decoding, and one for each share that is kept."""
    draw = random.Random(1)
    prompts = [[draw.randrange(_VOCABULARY) for _ in range(given.prompt)] for _ in range(batch)]
    replies = by_generate(model, prompts, given.reply)
    memories = {kept: [memory_of(reply, kept, draw) for reply in replies] for kept in given.kept}
    counted = Counted(model)
    ways: dict[tuple[str, float | None], Callable[[], list[list[int]]]] = {
        ("generate", None): lambda: by_generate(model, prompts, given.reply),
        ("plain", None): lambda: by_us(counted, prompts, given.reply, None),
        **{("lookup", kept): partial(by_us, counted, prompts, given.reply, texts) for kept, texts in memories.items()},
    }
    seconds: dict[Any, list[float]] = {way: [] for way in ways}
    found: dict[Any, tuple[int, float]] = {}
    for _ in range(given.repeat):
        for way, run in ways.items():
            counted.passes = -1
            began = time.perf_counter()
            made = run()
            seconds[way].append(time.perf_counter() - began)
            found[way] = counted.passes, sum(one == reply for one, reply in zip(made, replies, strict=True)) / batch
    took = {way: median(times) for way, times in seconds.items()}
    return [
        {
            "engine": way[0],
            "parameters": sum(one.numel() for one in model.parameters()),
            "dtype": given.dtype,
            "batch": batch,
            "kept": way[1],
            "prompt": given.prompt,
            "reply": given.reply,
            "seconds": round(took[way], 2),
            "passes": given.reply - 1 if way[0] == "generate" else found[way][0],
            "against_generate": round(took["generate", None] / took[way], 2),
            "against_plain": round(took["plain", None] / took[way], 2),
            "equal": round(found[way][1], 3),
            "repeats": given.repeat,
        }
        for way in ways
    ]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.lookup")
    parser.add_argument("out", type=Path)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=600)
    parser.add_argument("--reply", type=int, default=128)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--kept", type=float, nargs="+", default=[1.0, 0.8, 0.5, 0.0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    model = llama(given.hidden, given.layers, given.prompt + given.reply + 1, given.dtype)
    rows: list[dict[str, Any]] = []
    for batch in given.batch:
        rows += measured(model, batch, given)
        for row in rows[-2 - len(given.kept) :]:
            print(row, file=sys.stderr)
    write(given.out, COLUMNS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
