"""Prompts of unequal length in one batch on a CPU: memagent's attention against torch's with a padding mask.

    python benchmarks/prefill.py data/books/*.gz [--rows 25 50 90] [--tokens 600 700] [--reply 16] [--threads 1]

Prompts are cut from the books at random places, of random lengths within --tokens; the embedded model replies with
exactly --reply tokens to each. The two attentions take turns within one process; the table has the fastest of
--repeat runs of each, since other work on the machine only ever slows a run. Tokens/s are prompt tokens, without padding.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

from memagent.documents import load
from memagent.models.open import open_model

KINDS = {"sdpa": "sdpa", "memagent": "memagent_rows"}


def prompts(ids: list[int], rows: int, shortest: int, longest: int) -> list[list[int]]:
    draw = random.Random(rows)
    lengths = sorted(draw.randint(shortest, longest) for _ in range(rows))  # the engine sorts too
    starts = [draw.randrange(len(ids) - length) for length in lengths]
    return [ids[start : start + length] for start, length in zip(starts, lengths, strict=True)]


def run(model: Any, batch: list[list[int]], reply: int) -> tuple[float, float]:
    """Seconds of everything, and of the prefill in it."""
    from memagent.core import Sampling
    from memagent.models.sampler import Row, sample

    rows = [Row(prompt=prompt, max_tokens=reply, sampling=Sampling()) for prompt in batch]
    passes: list[float] = []
    hook = model.register_forward_hook(lambda *_: passes.append(time.perf_counter()))
    began = time.perf_counter()
    sample(model, rows, stop_ids=frozenset(), pad_id=0)
    ended = time.perf_counter()
    hook.remove()
    return ended - began, passes[0] - began


def measure(model: Any, batch: list[list[int]], reply: int, repeat: int) -> dict[str, tuple[float, float]]:
    """Attention → what its fastest run took."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in KINDS}
    for _ in range(repeat):
        for name, kind in KINDS.items():
            model.set_attn_implementation(kind)
            taken[name].append(run(model, batch, reply))
    return {name: min(times) for name, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("books", nargs="+")
    parser.add_argument("--rows", type=int, nargs="+", default=[25, 50, 90])
    parser.add_argument("--tokens", type=int, nargs=2, default=[600, 700])
    parser.add_argument("--reply", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=8)
    arguments = parser.parse_args()
    import torch

    engine: Any = open_model("embedded").engine
    torch.set_num_threads(arguments.threads)
    text = load(arguments.books).read(0, 2_000_000)
    ids = engine._hf_tokenizer(text, add_special_tokens=False)["input_ids"]
    print("| rows | attention | prefill tokens/s | a decoding step | share of prefill | tokens/s in all | ratio |")
    print("|---|---|---|---|---|---|---|")
    for rows in arguments.rows:
        batch = prompts(ids, rows, *arguments.tokens)
        total = sum(map(len, batch))
        measured = measure(engine.model, batch, arguments.reply, arguments.repeat)
        for name, (whole, first) in measured.items():
            step = (whole - first) / (arguments.reply - 1)
            print(
                f"| {rows} | {name} | {total / first:,.0f} | {step * 1000:.1f} ms | {first / whole:.0%} |"
                f" {total / whole:,.0f} | {measured['sdpa'][0] / whole:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
