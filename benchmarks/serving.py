"""How long readers take at a server whose model writes long memories: real requests, replies of a perfect reader.

    python -m benchmarks.serving OUT.csv [--hidden 512] [--pairs 5] [--slots 1 8] [--memory 32 128] [--tokens 65536]
        [--task niah_single_2] [--repeat 2] [--threads 2] [--seed 501]

A model with random weights is served by llama.cpp (xllamacpp) in so many slots. Every turn of a reading sends it the turn's
prompt and generates a fixed number of tokens: `--memory` for a memory or note, 3 for "nothing new", 8 for the answer. The
reader is told what a perfect reader would have replied. So prompts, numbers of turns and their order are those of a perfect
reading, and time is that of a model whose memories are that long; nothing is said about accuracy. The server keeps no
prompts, since the same documents are read several times. The readers take turns, document by document. `against_memory`
is the time of `memory` over that of the reader.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import openai
from transformers import AutoTokenizer

from benchmarks.readers import write
from memagent.core import Budgets, Completion, Turn, make_reader, plan_reading
from memagent.driver import aread
from memagent.embedded import FOLDER as EMBEDDED
from memagent.models.gguf import write_gguf
from memagent.models.open import open_tokenizer
from memagent.profiles import load_profile
from memagent.tasks.catalog import find
from memagent.tasks.haystack import Haystack
from memagent.tasks.samples import Sample
from memagent.tasks.task import Materials, Request
from memagent.tasks.words import shipped_words
from memagent.training.config import ModelShape
from memagent.training.model import build_model
from memagent.training.reader_turns import TURNS
from tests.servers import llama_server

COLUMNS = "reader parameters slots memory_tokens tokens turns seconds against_memory repeats".split()
WINDOW, BUDGETS = 1024, Budgets(question=64, chunk=640, memory=128, answer=32)


class Stand:
    """An engine that waits for a server to generate as many tokens, and then says what a perfect reader would."""

    def __init__(self, url: str, slots: int, memory: int, replies: Mapping[str, str]) -> None:
        self.client = openai.AsyncOpenAI(base_url=url, api_key="none", timeout=600)
        self._memory, self._replies, self._nothing = memory, replies, load_profile("compact").nothing
        self.identity, self.window, self.overhead = "stand", WINDOW, 0
        self.lockstep, self.concurrency = False, slots
        self.tokenizer = open_tokenizer("embedded")
        self.turns = 0

    def generate(self, turns: Sequence[Turn]) -> list[Completion | Exception]:
        raise TypeError("a server takes turns one by one")

    async def agenerate(self, turn: Turn) -> Completion:
        reply = self._replies[turn.user]
        tokens = 8 if turn.kind == "answer" else 3 if reply == self._nothing else self._memory
        await self.client.completions.create(
            model="stand", prompt=turn.user, max_tokens=tokens, temperature=0, extra_body={"ignore_eos": True}
        )
        self.turns += 1
        return Completion(text=reply)

    def close(self) -> None:
        """Nothing to release."""


async def seconds(sample: Sample, reader: str, url: str, slots: int, memory: int) -> tuple[float, int]:
    """Seconds and turns of one reading."""
    profile, tokenizer = load_profile("compact"), open_tokenizer("embedded")
    turns = TURNS[reader](profile, tokenizer, sample, BUDGETS.chunk)
    replies = {turn.prompt: "".join(text for text, _ in turn.reply).strip() for turn in turns}
    engine = Stand(url, slots, memory, replies)
    plan = plan_reading(
        sample.document, sample.question, reader=make_reader(reader), tokenizer=tokenizer, profile=profile, budgets=BUDGETS
    )
    began = time.perf_counter()
    await aread(plan, engine)
    took = time.perf_counter() - began
    await engine.client.close()
    return took, engine.turns


def stand_in(folder: Path, hidden: int, pairs: int) -> tuple[Path, int]:
    """A model with random weights for llama.cpp, and how many parameters it has."""
    tokenizer: Any = AutoTokenizer.from_pretrained(EMBEDDED, local_files_only=True)
    shape = ModelShape(
        hidden=hidden, feed_forward=4 * hidden, heads=hidden // 64, layers=["conv", "full_attention"] * pairs, window=WINDOW
    )
    model = build_model(shape, len(tokenizer), 1)
    model.save_pretrained(folder / "stand")
    tokenizer.save_pretrained(folder / "stand")
    return write_gguf(folder / "stand", folder / "stand.gguf", dtype="f16"), sum(one.numel() for one in model.parameters())


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.serving")
    parser.add_argument("out", type=Path)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--slots", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--memory", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--task", default="niah_single_2")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=501)
    given = parser.parse_args(arguments)
    for name in ("hidden", "pairs", "slots", "memory", "tokens", "repeat", "threads"):
        value = getattr(given, name)
        if min(value if isinstance(value, list) else [value]) < 1:
            parser.error(f"--{name} {value}: at least 1")
    if given.hidden % 64:
        parser.error(f"--hidden {given.hidden}: a multiple of 64, the size of a head")
    if max(given.memory) > BUDGETS.memory:
        parser.error(f"--memory {max(given.memory)}: at most {BUDGETS.memory}, the budget of a memory")
    materials = Materials(tokenizer=open_tokenizer("embedded"), haystack=Haystack.shipped(), words=shipped_words("eval"))
    task = find(given.task)
    requests = [Request(tokens=given.tokens, seed=given.seed, index=index) for index in range(given.repeat)]
    samples = [task.sample(materials, request, task.options({})) for request in requests]
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        weights, parameters = stand_in(Path(folder), given.hidden, given.pairs)
        for slots in given.slots:
            with llama_server(weights, window=WINDOW, slots=slots, threads=given.threads, cache=0) as server:
                for memory in given.memory:
                    took: dict[str, list[tuple[float, int]]] = {reader: [] for reader in ("memory", "gated", "parallel")}
                    for sample in samples:
                        for reader, found in took.items():
                            found.append(asyncio.run(seconds(sample, reader, server.url, slots, memory)))
                    usual = mean(one for one, _ in took["memory"])
                    for reader, found in took.items():
                        time_taken = mean(one for one, _ in found)
                        rows.append(
                            {
                                "reader": reader,
                                "parameters": parameters,
                                "slots": slots,
                                "memory_tokens": memory,
                                "tokens": given.tokens,
                                "turns": round(mean(turns for _, turns in found)),
                                "seconds": round(time_taken, 2),
                                "against_memory": round(usual / time_taken, 2),
                                "repeats": given.repeat,
                            }
                        )
                        print(rows[-1], file=sys.stderr)
    write(given.out, COLUMNS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
