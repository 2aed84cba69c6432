"""The two halves of a batch of reinforcement learning, and the optimizer of supervised training, against plain code on the
same tokens, in turns within one process.

    python benchmarks/training.py [--groups 4] [--members 8] [--tokens 700] [--reply 24] [--threads 1] [--repeat 3]

Rollout: the embedded model samples --members replies of exactly --reply tokens to each of --groups prompts of --tokens
tokens: memagent's sampler against `generate` of transformers. Update: forward and backward on the same conversations, each
with an advantage: memagent's optimizer step (`update.step`: merging, objective, AdamW included) against the stock model's
forward and backward in rows padded to one rectangle of the same token budget. Prompts are random tokens. Muon: one step
for all of the model's matrices against PyTorch's. Ratios are of the fastest of --repeat runs; above 1 memagent is faster.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from memagent.core import Sampling
from memagent.embedded import FOLDER as EMBEDDED
from memagent.models.sampler import Row, sample
from memagent.training.config import PolicyConfig
from memagent.training.credit import Conversation, CreditedRow, merge, weigh
from memagent.training.loss import Objective
from memagent.training.optimizers import Muon, matrices
from memagent.training.policy import Policy
from memagent.training.rl_config import UpdateConfig
from memagent.training.update import Learner, Updater, micro_batches

BUDGET = 8192


def fastest(repeat: int, *runs: Callable[[], object]) -> list[float]:
    """Seconds of the fastest of `repeat` rounds of each, in turns."""
    taken: list[list[float]] = [[] for _ in runs]
    for _ in range(repeat):
        for times, run in zip(taken, runs, strict=True):
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
    return [min(times) for times in taken]


def sampled(model: Any, prompts: list[list[int]], reply: int) -> list[Row]:
    rows = [
        Row(prompt=prompt, max_tokens=reply, sampling=Sampling(temperature=1.0, seed=number))
        for number, prompt in enumerate(prompts)
    ]
    sample(model, rows, stop_ids=frozenset(), pad_id=0)
    return rows


@torch.inference_mode()
def generated(model: Any, prompts: list[list[int]], reply: int) -> None:
    ids = torch.tensor(prompts)
    model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=1.0, top_k=0, min_new_tokens=reply,
        max_new_tokens=reply,
    )  # fmt: skip


def plain_step(model: Any, rows: list[CreditedRow]) -> None:
    """Forward and backward of the stock model, logits at every token, nothing merged."""
    for _, batch in micro_batches(rows, BUDGET, 0):
        logits = model(input_ids=torch.tensor(batch.ids), use_cache=False).logits
        places, keep = torch.tensor(batch.at), torch.tensor(batch.kind) >= 0
        picked = logits.gather(1, places[..., None].expand(-1, -1, logits.shape[-1]))[keep]
        functional.cross_entropy(picked, torch.tensor(batch.target)[keep]).backward()
    model.zero_grad(set_to_none=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("groups", 4), ("members", 8), ("tokens", 700), ("reply", 24), ("threads", 1), ("repeat", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    policy = Policy(EMBEDDED, PolicyConfig(device="cpu"))
    draw = random.Random(0)
    prompts = [[draw.randrange(4, 4096) for _ in range(options.tokens)] for _ in range(options.groups)]
    batch = [prompt for prompt in prompts for _ in range(options.members)]
    ours, theirs = fastest(
        options.repeat,
        lambda: sampled(policy.causal, batch, options.reply),
        lambda: generated(policy.causal, batch, options.reply),
    )
    total = len(batch) * (options.tokens + options.reply)
    print("| what | memagent tokens/s | plain tokens/s | ratio |\n|---|---|---|---|")
    print(f"| rollout | {total / ours:,.0f} | {total / theirs:,.0f} | {theirs / ours:.2f} |")
    rows = [
        CreditedRow(
            Conversation(tuple(row.prompt), tuple(row.ids), tuple(row.logprobs)), up=max(value, 0), down=min(value, 0)
        )
        for row, value in zip(sampled(policy.causal, batch, options.reply), [0.5, -0.5] * len(batch), strict=False)
    ]
    updater = Updater(Learner(policy, Objective()), UpdateConfig(batch_tokens=BUDGET), Path("failed.pt"))
    ours, theirs = fastest(
        options.repeat,
        lambda: updater.step(weigh(merge(rows)), 0.0),
        lambda: plain_step(policy.causal, rows),
    )
    print(f"| update | {total / ours:,.0f} | {total / theirs:,.0f} | {theirs / ours:.2f} |")
    inner = matrices(policy.causal)
    for matrix in inner:
        matrix.grad = torch.randn_like(matrix)
    ours, theirs = fastest(options.repeat, Muon(inner, lr=0.0).step, torch.optim.Muon(inner, lr=0.0).step)
    print(f"\nA step of Muon: {ours:.3f} s, PyTorch's {theirs:.3f} s, ratio {theirs / ours:.2f}")


if __name__ == "__main__":
    main()
